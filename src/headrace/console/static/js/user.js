// Who reads this page, and what they may do. The server decides; this only hides what it would refuse.

const RANK = { nobody: 0, reader: 1, writer: 2, admin: 3 };

export const user = { name: null, role: "nobody" };

/** Takes it from the session; without users everybody on this machine may do everything. */
export function setUser(session) {
  user.name = session.login === "done" ? session.name : null;
  user.role = session.role;
}

/** Whether this user has at least that role. */
export const may = (role) => RANK[user.role] >= RANK[role];
