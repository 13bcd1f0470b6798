/* The loops that go from byte to byte; `__init__.py` says what they are for.
 *
 * Nothing here allocates, keeps anything between calls (but which instructions the processor
 * has) or trusts a byte of the data: a position is used only after it was compared with the
 * end of what it lies in. Outputs are as large as the caller counted beforehand; each function
 * says how large that is. Only `send_checked` and `commit_alone` do anything but reckon.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

#if defined(__APPLE__)
#define SYNC fsync /* never called: there, a sync needs more than that (`storage.disk`) */
#else
#define SYNC fdatasync
#endif

typedef const uint8_t *place;

/* Eight octets as a number, the first one lowest. */
static inline uint64_t word(place at)
{
    uint64_t octets;
    memcpy(&octets, at, sizeof octets);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    octets = __builtin_bswap64(octets);
#endif
    return octets;
}

#define WORD ((int64_t)sizeof(uint64_t))

#define MAX_VARINT_BITS 70 /* ten bytes of seven bits */

/* A zigzag varint at `at`: its value goes to `value`, and what follows it is returned; NULL
 * if it does not end before `end` or within ten bytes. */
static inline place varint(place at, place end, int64_t *value)
{
    uint64_t bits = 0;
    for (unsigned shift = 0; shift < MAX_VARINT_BITS && at < end; shift += 7) {
        uint8_t octet = *at++;
        bits |= (uint64_t)(octet & 127) << shift;
        if (octet < 128) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return at;
        }
    }
    return NULL;
}

/* Bytes behind their length (-1: null): where they lie goes to `start` and `length`, and
 * what follows them is returned; NULL if they do not fit. */
static inline place sized(place data, place at, place end, int64_t *start, int64_t *length)
{
    at = varint(at, end, length);
    if (!at || *length < -1 || *length > end - at)
        return NULL;
    *start = at - data;
    return *length > 0 ? at + *length : at;
}

/* --- records ----------------------------------------------------------------------------- */

enum part { OFFSET, TIMESTAMP, KEY_START, KEY_LENGTH, VALUE_START, VALUE_LENGTH, HEADER_COUNT, HEADER_START, END };

/* Where the parts of the `count` records lie that fill data[begin, end). Part p of record i
 * goes to parts[p * stride + i]. Returns how many records fit; -1 if bytes are left over. */
int64_t lay_out_records(place data, int64_t begin, int64_t end, int64_t count, int64_t base_offset,
                        int64_t base_timestamp, int64_t *parts, int64_t stride)
{
    place at = data + begin, batch_end = data + end;
    for (int64_t i = 0; i < count; i++) {
        int64_t size, time_delta, offset_delta, headers;
        int64_t *row = parts + i;
        at = varint(at, batch_end, &size);
        if (!at || size < 1 || size > batch_end - at)
            return i;
        place record_end = at + size;
        at = varint(at + 1, record_end, &time_delta); /* behind a byte of attributes, unused */
        if (at)
            at = varint(at, record_end, &offset_delta);
        if (at)
            at = sized(data, at, record_end, row + KEY_START * stride, row + KEY_LENGTH * stride);
        if (at)
            at = sized(data, at, record_end, row + VALUE_START * stride, row + VALUE_LENGTH * stride);
        if (at)
            at = varint(at, record_end, &headers);
        /* A header has two lengths, of a byte at least; without headers nothing is left. */
        if (!at || headers < 0 || headers > (record_end - at) / 2 || (headers == 0 && at != record_end))
            return i;
        /* Unsigned, since absurd deltas may wrap. */
        row[OFFSET * stride] = (int64_t)((uint64_t)base_offset + (uint64_t)offset_delta);
        row[TIMESTAMP * stride] = (int64_t)((uint64_t)base_timestamp + (uint64_t)time_delta);
        row[HEADER_COUNT * stride] = headers;
        row[HEADER_START * stride] = at - data;
        row[END * stride] = record_end - data;
        at = record_end;
    }
    return at == batch_end ? count : -1;
}

/* The fixed part of a batch, in Kafka's format v2; numbers are big-endian. */
enum {
    BASE_OFFSET_AT = 0,
    LENGTH_AT = 8,
    LENGTH_FROM = 12,
    EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    LAST_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    PRODUCER_ID_AT = 43,
    COUNT_AT = 57,
    RECORDS_AT = 61,
    MAGIC = 2,
    CODEC = 7,
    APPEND_TIME = 8,
    TRANSACTIONAL = 16,
    CONTROL = 32,
    LEAST_RECORD = 7, /* length, attributes, two deltas, two lengths, a count */
};

static inline int64_t big_endian(place at, int bytes)
{
    uint64_t bits = at[0] & 128 ? UINT64_MAX : 0;
    for (int i = 0; i < bytes; i++)
        bits = bits << 8 | at[i];
    return (int64_t)bits;
}

/* The end of the batch at `at`; NULL if it is none, or not whole. */
static place batch_end(place at, place end)
{
    if (end - at < RECORDS_AT || at[MAGIC_AT] != MAGIC)
        return NULL;
    int64_t size = big_endian(at + LENGTH_AT, 4) + LENGTH_FROM;
    return size < RECORDS_AT || size > end - at ? NULL : at + size;
}

/* How many records the batches that fill data[0, size) have, those of control batches not
 * counted; -1 if one is compressed, malformed, or claims more than its bytes can hold. */
int64_t count_records(place data, int64_t size)
{
    int64_t total = 0;
    for (place at = data, end = data + size, next; at < end; at = next) {
        next = batch_end(at, end);
        int64_t attributes = next ? big_endian(at + ATTRIBUTES_AT, 2) : CODEC;
        if (attributes & CODEC)
            return -1;
        if (attributes & CONTROL)
            continue;
        int64_t count = big_endian(at + COUNT_AT, 4);
        if (count < 0 || count > (next - at - RECORDS_AT) / LEAST_RECORD)
            return -1;
        total += count;
    }
    return total;
}

/* Where the parts of these records lie, as `lay_out_records` has it. Returns how many records
 * were laid out; less than `count_records` found if one does not fit. */
int64_t lay_out_batches(place data, int64_t size, int64_t *parts, int64_t stride)
{
    int64_t total = 0;
    for (place at = data, end = data + size, next; at < end; at = next) {
        next = batch_end(at, end);
        int64_t attributes = big_endian(at + ATTRIBUTES_AT, 2);
        if (attributes & CONTROL)
            continue;
        int64_t count = big_endian(at + COUNT_AT, 4);
        int64_t fitting = lay_out_records(data, at + RECORDS_AT - data, next - data, count,
                                          big_endian(at + BASE_OFFSET_AT, 8),
                                          big_endian(at + BASE_TIMESTAMP_AT, 8), parts + total, stride);
        if (fitting != count)
            return total;
        if (attributes & APPEND_TIME)
            for (int64_t i = 0; i < count; i++)
                parts[TIMESTAMP * stride + total + i] = big_endian(at + MAX_TIMESTAMP_AT, 8);
        total += count;
    }
    return total;
}

enum header_part { NAME_START, NAME_LENGTH, CONTENT_START, CONTENT_LENGTH };

/* Where the headers of `count` records lie, given how many each has, where they begin, and
 * where the record ends. Parts as above. Returns how many records' headers fit. */
int64_t lay_out_headers(place data, int64_t count, const int64_t *counts, const int64_t *starts,
                        const int64_t *ends, int64_t *parts, int64_t stride)
{
    int64_t *row = parts;
    for (int64_t i = 0; i < count; i++) {
        place at = data + starts[i], end = data + ends[i];
        for (int64_t each = 0; each < counts[i]; each++, row++) {
            at = sized(data, at, end, row + NAME_START * stride, row + NAME_LENGTH * stride);
            if (!at)
                return i;
            at = sized(data, at, end, row + CONTENT_START * stride, row + CONTENT_LENGTH * stride);
            if (!at)
                return i;
        }
        if (at != end)
            return i;
    }
    return count;
}

/* Copies what lies at each start, one behind the other, to `octets`, which holds the sum of
 * all lengths; bounds[i] and bounds[i + 1] are where in it. A negative length is nothing. */
void gather(place data, int64_t count, const int64_t *starts, const int64_t *lengths, int32_t *bounds,
            uint8_t *octets)
{
    int32_t filled = 0;
    bounds[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] > 0) {
            memcpy(octets + filled, data + starts[i], (size_t)lengths[i]);
            filled += (int32_t)lengths[i];
        }
        bounds[i + 1] = filled;
    }
}

/* --- checksums --------------------------------------------------------------------------- */

/* A CRC-32C, not inverted, and [at, end) behind what it is of. Which of these functions it is
 * depends on the processor, and is known before any is called. */
typedef uint32_t checksum(uint32_t crc, place at, place end);

/* Four bits at a time, for processors without an instruction for it. */
static uint32_t checksum_by_table(uint32_t crc, place at, place end)
{
    static const uint32_t by_nibble[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    for (; at < end; at++) {
        crc ^= *at;
        crc = crc >> 4 ^ by_nibble[crc & 15];
        crc = crc >> 4 ^ by_nibble[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__)

/* The instruction takes three cycles and a new one may begin in each, so three thirds of a
 * stretch are summed side by side. A third's sum is moved behind the others by multiplying
 * it with x^(8n-33) for n bytes; the instruction itself reduces the product. */
__attribute__((target("sse4.2,crc32,pclmul"))) static uint32_t checksum_by_instruction(uint32_t crc, place at, place end)
{
    static const struct {
        int64_t third, behind_one, behind_two;
    } stretches[] = {{8192, 0x54a86326, 0x1dc403cc}, {256, 0xb9e02b86, 0xdd7e3b0c}};
    uint64_t first = crc;
    for (int i = 0; i < 2; i++) {
        int64_t third = stretches[i].third;
        for (; end - at >= 3 * third; at += 3 * third) {
            uint64_t second = 0, last = 0;
            for (place here = at, stop = at + third; here < stop; here += 8) {
                first = _mm_crc32_u64(first, word(here));
                second = _mm_crc32_u64(second, word(here + third));
                last = _mm_crc32_u64(last, word(here + 2 * third));
            }
            __m128i moved = _mm_xor_si128(
                _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)first), _mm_cvtsi64_si128(stretches[i].behind_two), 0),
                _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)second), _mm_cvtsi64_si128(stretches[i].behind_one), 0));
            first = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(moved)) ^ last;
        }
    }
    for (; end - at >= 8; at += 8)
        first = _mm_crc32_u64(first, word(at));
    for (; at < end; at++)
        first = _mm_crc32_u8((uint32_t)first, *at);
    return (uint32_t)first;
}

static int has_instruction(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_SSE4_2 && c & bit_PCLMUL;
}

#elif defined(__aarch64__)

__attribute__((target("crc"))) static uint32_t checksum_by_instruction(uint32_t crc, place at, place end)
{
    for (; end - at >= 8; at += 8) {
        uint64_t bits;
        memcpy(&bits, at, 8);
        crc = __crc32cd(crc, bits);
    }
    for (; at < end; at++)
        crc = __crc32cb(crc, *at);
    return crc;
}

static int has_instruction(void)
{
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 1;
#endif
}

#else

static int has_instruction(void) { return 0; }

#define checksum_by_instruction checksum_by_table

#endif

static checksum *checksum_here = checksum_by_table;

__attribute__((constructor)) static void choose_checksum(void)
{
    if (has_instruction())
        checksum_here = checksum_by_instruction;
}

/* CRC-32C of data[0, size); by the table, if asked, so that a test can compare. */
int64_t sum_bytes(place data, int64_t size, int64_t by_table)
{
    return ~(by_table ? checksum_by_table : checksum_here)(UINT32_MAX, data, data + size);
}

/* --- whole batches ----------------------------------------------------------------------- */

enum fault { MISPLACED = 1, WRONG_SUM = 2 };

/* A walk over batches of a segment, each of which must be whole, in its place and intact:
 * where it stands, what it takes down, and what it met. `batches.py` has the same. */
struct walk {
    int64_t next_offset; /* of the next batch; with `gaps` at least that */
    int64_t gaps;
    int64_t largest_timestamp; /* so far */
    int64_t index_at;          /* the first batch that begins here or behind gets an entry, */
    int64_t index_interval;    /* and the first that begins so far behind it, and so on */
    int64_t entry_count, producer_count; /* taken down by this call */
    int64_t transactional;               /* whether one of those is of a transaction, or ends one */
    int64_t fault;                       /* of the batch at which it ended */
};

enum { ENTRY_FIELDS = 3, PRODUCER_FIELDS = 2 };

/* What a header at `at` says of its batch: its size, and the offset behind it. Whether it is in its place. */
static inline int in_place(const struct walk *walk, place at, int64_t expected, int64_t *size, int64_t *next)
{
    int64_t base = big_endian(at + BASE_OFFSET_AT, 8), delta = big_endian(at + LAST_DELTA_AT, 4);
    *size = big_endian(at + LENGTH_AT, 4) + LENGTH_FROM;
    if ((walk->gaps ? base < expected : base != expected) || base >= INT64_MAX - INT32_MAX ||
        big_endian(at + EPOCH_AT, 4) || at[MAGIC_AT] != MAGIC || *size < RECORDS_AT || delta < 0)
        return 0;
    *next = base + delta + 1;
    return 1;
}

/* Walks over data[begin, end) and returns where it ended: before a batch that has a fault, or
 * that is not all there. What is taken down goes to `entries` (start, base offset, largest
 * timestamp before) and `producers` (start, producer id; of batches that have one). Either
 * holds that of one batch in 61 bytes, or is NULL. */
int64_t walk_batches(place data, int64_t begin, int64_t end, struct walk *walk, int64_t *entries, int64_t *producers)
{
    checksum *sum = checksum_here;
    int64_t expected = walk->next_offset, largest = walk->largest_timestamp;
    walk->entry_count = walk->producer_count = walk->transactional = walk->fault = 0;
    while (end - begin >= RECORDS_AT) {
        place at = data + begin;
        int64_t size, next;
        if (!in_place(walk, at, expected, &size, &next)) {
            walk->fault = MISPLACED;
            break;
        }
        if (size > end - begin)
            break;
        if ((uint32_t)big_endian(at + CRC_AT, 4) != (uint32_t)~sum(UINT32_MAX, at + ATTRIBUTES_AT, at + size)) {
            walk->fault = WRONG_SUM;
            break;
        }
        if (entries && begin >= walk->index_at) {
            int64_t *entry = entries + ENTRY_FIELDS * walk->entry_count++;
            entry[0] = begin;
            entry[1] = big_endian(at + BASE_OFFSET_AT, 8);
            entry[2] = largest;
            walk->index_at = begin + walk->index_interval;
        }
        int64_t timestamp = big_endian(at + MAX_TIMESTAMP_AT, 8), producer_id = big_endian(at + PRODUCER_ID_AT, 8);
        if (timestamp > largest)
            largest = timestamp;
        if (producers && producer_id >= 0) {
            int64_t *noted = producers + PRODUCER_FIELDS * walk->producer_count++;
            noted[0] = begin;
            noted[1] = producer_id;
            walk->transactional |= (big_endian(at + ATTRIBUTES_AT, 2) & (TRANSACTIONAL | CONTROL)) != 0;
        }
        expected = next;
        begin += size;
    }
    walk->next_offset = expected;
    walk->largest_timestamp = largest;
    return begin;
}

/* The same check of bytes that come in pieces of any size. `batches.py` has the same fields. */
struct check {
    struct walk walk; /* `next_offset`, `gaps` and `fault` count */
    int64_t position; /* where the batch being checked begins, */
    int64_t size;     /* its size, 0 until its header is there, */
    int64_t left;     /* how much of it is still to come, */
    int64_t next;     /* the offset behind it, */
    int64_t sum;      /* what it must sum up to and what it has so far */
    int64_t sum_so_far;
    int64_t header_bytes; /* there so far, of a header that a piece cut in two */
    uint8_t header[RECORDS_AT];
};

/* Checks the next `size` bytes; the fault of the batch at `position`, or 0. */
int64_t check_bytes(place data, int64_t size, struct check *check)
{
    checksum *sum = checksum_here;
    place at = data, end = data + size;
    while (at < end) {
        if (!check->size) {
            place header = at;
            if (check->header_bytes || end - at < RECORDS_AT) {
                int64_t missing = RECORDS_AT - check->header_bytes, here = end - at < missing ? end - at : missing;
                memcpy(check->header + check->header_bytes, at, (size_t)here);
                check->header_bytes += here;
                at += here;
                if (check->header_bytes < RECORDS_AT)
                    return 0;
                header = check->header;
            } else {
                at += RECORDS_AT;
            }
            if (!in_place(&check->walk, header, check->walk.next_offset, &check->size, &check->next))
                return check->walk.fault = MISPLACED;
            check->sum = big_endian(header + CRC_AT, 4) & UINT32_MAX;
            check->sum_so_far = sum(UINT32_MAX, header + ATTRIBUTES_AT, header + RECORDS_AT);
            check->left = check->size - RECORDS_AT;
            check->header_bytes = 0;
        }
        int64_t here = end - at < check->left ? end - at : check->left;
        check->sum_so_far = sum((uint32_t)check->sum_so_far, at, at + here);
        check->left -= here;
        at += here;
        if (!check->left) {
            if ((uint32_t)check->sum != (uint32_t)~check->sum_so_far)
                return check->walk.fault = WRONG_SUM;
            check->position += check->size;
            check->walk.next_offset = check->next;
            check->size = 0;
        }
    }
    return 0;
}

/* --- from a file to a socket --------------------------------------------------------------- */

enum outcome { ENDED = 0, TURN_IS_OVER = 1, SOCKET_IS_FULL = 2, NOT_IN_MEMORY = 3, HAS_A_FAULT = 4, UNREADABLE = 5 };

/* A stretch of a file on its way. `batches.py` has the same. */
struct sending {
    int64_t position, end; /* what is still to be read */
    int64_t start, stop;   /* what of the window was checked and is still to be sent */
    int64_t error;         /* errno of a read that failed; 0 where the file ended early */
};

/* Reads what is in memory, as far as the system can tell that. */
static ssize_t read_in_memory(int file, uint8_t *room, size_t size, off_t position)
{
#if defined(__linux__)
    struct iovec into = {room, size};
    ssize_t count = preadv2(file, &into, 1, position, RWF_NOWAIT);
    if (count >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS))
        return count;
#endif
    return pread(file, room, size, position);
}

/* Whether there is something to read from a descriptor, if it is one. */
static int is_readable(int64_t descriptor)
{
    struct pollfd watched = {(int)descriptor, POLLIN, 0};
    return descriptor >= 0 && poll(&watched, 1, 0) > 0;
}

/* What was known where a part of the window ended: what the socket leaves behind it is read again. */
struct mark {
    int64_t position;
    struct check check;
};

enum { MOST_PARTS = 8 };

/* Sends window[0, filled) and then the file's bytes, checked, a window at a time, until `most`
 * bytes are sent, `others` has something to read, or something else ends it. The window consists of
 * whole parts, MOST_PARTS at most, of which one may be filled already; what is left of one part,
 * never more, is the caller's to send. That is so, too, with less than a part at the end of the
 * file's bytes, since more may follow. */
int64_t send_checked(int64_t file, int64_t socket, int64_t others, uint8_t *window, int64_t room, int64_t part,
                     int64_t filled, int64_t most, struct check *check, struct sending *sending)
{
    struct mark marks[MOST_PARTS];
    int64_t sent = 0;
    sending->start = 0;
    marks[0] = (struct mark){sending->position, *check}; /* should the first part be filled already */
    for (;;) {
        int others_wait = 0, is_cold = 0;
        while (filled < room && sending->position < sending->end && !others_wait && !is_cold) {
            int64_t wanted = sending->end - sending->position, to_mark = part - filled % part;
            sending->stop = filled;
            ssize_t count = read_in_memory((int)file, window + filled, (size_t)(wanted < to_mark ? wanted : to_mark),
                                           sending->position);
            if (count < 0 && errno == EINTR)
                continue;
            if (count < 0 && errno == EAGAIN) {
                is_cold = 1;
                continue;
            }
            if (count <= 0) {
                sending->error = count < 0 ? errno : 0;
                return UNREADABLE;
            }
            if (check_bytes(window + filled, count, check))
                return HAS_A_FAULT;
            sending->position += count;
            filled += count;
            if (!(filled % part)) {
                marks[filled / part - 1] = (struct mark){sending->position, *check};
                others_wait = is_readable(others);
            }
        }
        sending->stop = filled;
        if (filled < part)
            return is_cold ? NOT_IN_MEMORY : ENDED;
        ssize_t taken = write((int)socket, window, (size_t)filled);
        if (taken < filled) { /* full, or broken: whoever sends the rest finds out */
            sending->start = taken > 0 ? taken : 0;
            int64_t parts = sending->start / part + 1;
            if (parts * part < filled) {
                sending->stop = parts * part;
                sending->position = marks[parts - 1].position;
                *check = marks[parts - 1].check;
            }
            return SOCKET_IS_FULL;
        }
        sent += taken;
        filled = sending->stop = 0;
        if (is_cold)
            return NOT_IN_MEMORY;
        if (sending->position == sending->end)
            return ENDED;
        if (sent >= most || others_wait || is_readable(others))
            return TURN_IS_OVER;
    }
}

/* --- requests that are sent again --------------------------------------------------------- */

enum {
    CORRELATION_AT = 4, /* behind API key and version, */
    HEADER_AT = 8,      /* before everything that is the same in the next request */
    LONG_LENGTH = 128,  /* a length or count that needs a second byte */
};

/* Whether frame[0, end) is shape[0, end), whatever the correlation id. */
static inline int begins_alike(place frame, place shape, int64_t end)
{
    return !memcmp(frame, shape, CORRELATION_AT) && !memcmp(frame + HEADER_AT, shape + HEADER_AT, end - HEADER_AT);
}

/* What a partition of a fetch request has: number, leader epoch, offset, and what does not change. */
enum { ASKED_BYTES = 33, ASKED_EPOCH_AT = 4, ASKED_OFFSET_AT = 8, ASKED_REST_AT = 16, BEHIND_ASKED = 4 };

/* Whether the fetch request in frame[0, size) is the one in `shape`, of the same size, from other
 * offsets and with its `count` partitions, fewer than 128, which begin at `start`, in any order.
 * The offset of each, in the shape's order, goes to `offsets`, and the shape's place of each that
 * is asked for, as they come, to `order`. */
int64_t match_fetch(place frame, int64_t size, place shape, int64_t start, int64_t count, int64_t *offsets,
                    int64_t *order)
{
    uint8_t seen[LONG_LENGTH] = {0};
    int64_t end = start + count * ASKED_BYTES, known = 0;
    if (size != end + BEHIND_ASKED || !begins_alike(frame, shape, start) ||
        memcmp(frame + end, shape + end, BEHIND_ASKED))
        return 0;
    for (int64_t i = 0; i < count; i++, known++) {
        place at = frame + start + i * ASKED_BYTES, twin;
        for (int64_t tried = 0;; tried++, known++) { /* mostly the next one, since they are sent in turn */
            if (tried == count)
                return 0;
            if (known >= count)
                known = 0;
            twin = shape + start + known * ASKED_BYTES;
            if (!memcmp(at, twin, ASKED_EPOCH_AT))
                break;
        }
        if (seen[known]++ || memcmp(at + ASKED_EPOCH_AT, twin + ASKED_EPOCH_AT, ASKED_OFFSET_AT - ASKED_EPOCH_AT) ||
            memcmp(at + ASKED_REST_AT, twin + ASKED_REST_AT, ASKED_BYTES - ASKED_REST_AT))
            return 0;
        offsets[known] = big_endian(at + ASKED_OFFSET_AT, 8);
        order[i] = known;
    }
    return 1;
}

static inline uint8_t *put(uint8_t *at, int64_t value, int bytes)
{
    for (int i = bytes; i--; value >>= 8)
        at[i] = (uint8_t)value;
    return at + bytes;
}

static inline uint8_t *put_octets(uint8_t *at, place octets, int64_t size)
{
    memcpy(at, octets, (size_t)size);
    return at + size;
}

static inline uint8_t *put_length(uint8_t *at, uint64_t length)
{
    for (; length >= LONG_LENGTH; length >>= 7)
        *at++ = (uint8_t)(length | LONG_LENGTH);
    *at++ = (uint8_t)length;
    return at;
}

/* Where a partition stands, as its readers are told. `requests.py` has the same. */
struct standing {
    int64_t index, high_watermark, last_stable, log_start;
};

/* A fetch request, and what its answer says before its partitions: the only topic, and their number. */
struct fetch {
    place frame, head;
    int64_t head_size;
    struct standing *standings;
    const int64_t *order; /* of the partitions, as places in `standings` */
    int64_t count, committed;
};

/* Writes the answer: each partition in its turn, without records but for the `chosen` one, by its
 * place in `standings`, if it is one. Its size; `out` holds all of that. */
int64_t write_fetched(uint8_t *out, const struct fetch *fetch, int64_t chosen, place records, int64_t size)
{
    uint8_t *at = put_octets(out + 4, fetch->frame + CORRELATION_AT, 4);
    at = put(at, 0, 1 + 4 + 2 + 4); /* no tagged fields, no throttling, no error, no session */
    at = put_octets(at, fetch->head, fetch->head_size);
    for (int64_t i = 0; i < fetch->count; i++) {
        const struct standing *standing = fetch->standings + fetch->order[i];
        int64_t length = fetch->order[i] == chosen ? size : 0;
        at = put(put(at, standing->index, 4), 0, 2);
        at = put(put(put(at, standing->high_watermark, 8), standing->last_stable, 8), standing->log_start, 8);
        at = put(put(at, fetch->committed, 1), -1, 4); /* none were aborted, read from us */
        at = put_length(at, (uint64_t)length + 1);
        at = put(put_octets(at, records, length), 0, 1);
    }
    at = put(at, 0, 2);
    put(out, at - out - 4, 4);
    return at - out;
}

/* Of the batch in a produce request: partition, start and size, number of records, first and last time. */
enum { FOUND_INDEX, FOUND_START, FOUND_SIZE, FOUND_COUNT, FOUND_FIRST, FOUND_LAST };

/* Whether frame[0, size) begins as `shape` does up to `start`, and has one partition behind it with
 * one plain batch, intact, as a producer may send it: not compressed, of no producer that is
 * remembered, its times the records' own. What of it there is to know goes to `found`. */
int64_t find_plain_batch(place frame, int64_t size, place shape, int64_t start, int64_t *found)
{
    if (size < start + 6 || !begins_alike(frame, shape, start) || frame[start] != 2)
        return 0;
    place at = frame + start + 1, end = frame + size;
    int64_t length = 0;
    found[FOUND_INDEX] = big_endian(at, 4);
    at += 4;
    for (int shift = 0;; shift += 7) {
        if (at == end || shift > 21)
            return 0;
        length |= (int64_t)(*at & 127) << shift;
        if (*at++ < LONG_LENGTH)
            break;
    }
    if (--length < RECORDS_AT || end - at != length + 3 || at[length] || at[length + 1] || at[length + 2])
        return 0;
    int64_t count = big_endian(at + COUNT_AT, 4);
    if (batch_end(at, at + length) != at + length || big_endian(at + BASE_OFFSET_AT, 8) ||
        big_endian(at + ATTRIBUTES_AT, 2) || big_endian(at + PRODUCER_ID_AT, 8) >= 0 || count < 1 ||
        count != big_endian(at + LAST_DELTA_AT, 4) + 1 ||
        (uint32_t)big_endian(at + CRC_AT, 4) != (uint32_t)~checksum_here(UINT32_MAX, at + ATTRIBUTES_AT, at + length))
        return 0;
    found[FOUND_START] = at - frame;
    found[FOUND_SIZE] = length;
    found[FOUND_COUNT] = count;
    found[FOUND_FIRST] = big_endian(at + BASE_TIMESTAMP_AT, 8);
    found[FOUND_LAST] = big_endian(at + MAX_TIMESTAMP_AT, 8);
    return 1;
}

/* One small batch that came alone, from its request to the disk, its reader and its producer.
 * `requests.py` has the same fields. */
struct lane {
    uint8_t *batch; /* where it is, and in which request, */
    int64_t size;
    place frame;
    int64_t partition, count;      /* for whom, with how many records, */
    int64_t file, position;        /* where it is to go, */
    int64_t base_offset, log_start;
    place head; /* what the answer to the producer says before its partitions, */
    int64_t head_size;
    int64_t others; /* readable when somebody else has something to do, or -1, */
    int64_t producer, reader; /* sockets; the reader's is -1 if nobody waits, */
    const struct fetch *fetch;
    int64_t chosen;
    uint8_t *room; /* for both answers */
    int64_t error, synced_ns;  /* what came of it: the disk's error, how long the sync took, */
    int64_t told, told_sent;   /* size of the reader's answer, and how much of it was sent, */
    int64_t acknowledged, acknowledged_sent; /* the producer's, which stands behind it, */
    int64_t awaited;                         /* and whether somebody else had something to do by then */
};

_Static_assert(sizeof(place) == sizeof(int64_t), "an address is one of the numbers");

enum { NOT_ALONE = 0, NOT_WRITTEN = 1, NOT_SYNCED = 2, COMMITTED = 3 };

static int write_all(int file, place at, int64_t size, int64_t position)
{
    while (size) {
        ssize_t count = pwrite(file, at, (size_t)size, position);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count ? errno : EIO;
        at += count;
        position += count;
        size -= count;
    }
    return 0;
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* How much of it a socket takes now; whoever sends the rest finds out what is wrong. */
static int64_t send_now(int64_t socket, place octets, int64_t size)
{
    ssize_t sent = write((int)socket, octets, (size_t)size);
    return sent > 0 ? sent : 0;
}

/* Writes the batch with its offset, syncs the file, answers the reader and then the producer.
 * Nothing is done if somebody else has something to do, who might share the sync; nobody is
 * answered if the disk refuses. */
int64_t commit_alone(struct lane *lane)
{
    if (is_readable(lane->others))
        return NOT_ALONE;
    put(lane->batch + BASE_OFFSET_AT, lane->base_offset, 8);
    put(lane->batch + EPOCH_AT, 0, 4);
    int64_t began = 0, came = COMMITTED;
    if ((lane->error = write_all((int)lane->file, lane->batch, lane->size, lane->position)))
        came = NOT_WRITTEN;
    else {
        began = monotonic_ns();
        if (SYNC((int)lane->file)) {
            lane->error = errno;
            came = NOT_SYNCED;
        }
    }
    if (came != COMMITTED) {
        put(lane->batch + BASE_OFFSET_AT, 0, 8); /* as it came */
        return came;
    }
    lane->synced_ns = monotonic_ns() - began;
    lane->awaited = is_readable(lane->others);
    lane->told = lane->told_sent = 0;
    if (lane->reader >= 0) {
        struct standing *standing = lane->fetch->standings + lane->chosen;
        standing->high_watermark = standing->last_stable = lane->base_offset + lane->count;
        lane->told = write_fetched(lane->room, lane->fetch, lane->chosen, lane->batch, lane->size);
        lane->told_sent = send_now(lane->reader, lane->room, lane->told);
    }
    uint8_t *out = lane->room + lane->told, *at = put_octets(out + 4, lane->frame + CORRELATION_AT, 4);
    at = put_octets(put(at, 0, 1), lane->head, lane->head_size);
    at = put(put(put(at, 2, 1), lane->partition, 4), 0, 2);
    at = put(put(put(at, lane->base_offset, 8), -1, 8), lane->log_start, 8);
    at = put(put(at, 1, 1), 0, 1 + 1 + 1 + 4 + 1); /* no record errors, message, tagged fields, throttling */
    lane->acknowledged = at - out;
    put(out, lane->acknowledged - 4, 4);
    lane->acknowledged_sent = send_now(lane->producer, out, lane->acknowledged);
    return COMMITTED;
}

/* --- JSON -------------------------------------------------------------------------------- */

enum kind { TEXT = 1, NUMBER = 2, INTEGER = 3, BOOLEAN = 4 };

#define MAX_DIGITS 18 /* so many always fit into 64 bits */

/* One member of the objects: the text before its content, with a word of anything behind it,
 * and where the content goes. TEXT and NUMBER: to `octets`, which holds all values and a word
 * more, and `bounds`, one more than values; nowhere if both are NULL. INTEGER, between `least`
 * and `most`: to `numbers`. BOOLEAN: to `octets`, a byte each, or nowhere. */
struct cell {
    place before;
    int64_t before_length;
    int64_t kind;
    int64_t least, most;
    int64_t *numbers;
    uint8_t *octets;
    int32_t *bounds;
};

#define EACH(octet) ((octet) * UINT64_C(0x0101010101010101))
#define TOP_BITS EACH(0x80)

/* Of marks in the top bits of a word's octets, how many octets lie before the first; 8 if there is none.
 * The marks below are right up to the first of them, and may be wrong behind it: a carry. */
static inline int64_t first_mark(uint64_t marks) { return marks ? __builtin_ctzll(marks) >> 3 : WORD; }

static inline uint64_t marks_of_zeros(uint64_t octets) { return (octets - EACH(1)) & ~octets & TOP_BITS; }

/* Behind the `length` octets of `text` if they stand at `at`, else NULL. `text` may be read a word
 * beyond its end. */
static inline place literal(place at, place end, place text, int64_t length)
{
    if (end - at < length)
        return NULL;
    for (; length >= WORD; length -= WORD, at += WORD, text += WORD)
        if (word(at) != word(text))
            return NULL;
    if (end - at >= WORD)
        return (word(at) ^ word(text)) << 1 << (63 - 8 * length) ? NULL : at + length;
    for (; length > 0; length--, at++, text++)
        if (*at != *text)
            return NULL;
    return at;
}

/* Up to the quote that ends a string in which every character stands for itself; copied to
 * `out` on the way, and up to a word of anything behind it, unless that is NULL. */
static inline place plain_text(place at, place end, uint8_t *out)
{
    for (; end - at >= WORD; at += WORD) {
        uint64_t octets = word(at);
        uint64_t control = (octets - EACH(' ')) & ~octets & TOP_BITS;
        uint64_t marks = control | marks_of_zeros(octets ^ EACH('"')) | marks_of_zeros(octets ^ EACH('\\'));
        if (out) {
            memcpy(out, at, WORD);
            out += WORD;
        }
        if (marks) {
            at += first_mark(marks);
            return *at == '"' ? at : NULL;
        }
    }
    for (; at < end && *at != '"' && *at != '\\' && *at >= ' '; at++)
        if (out)
            *out++ = *at;
    return at < end && *at == '"' ? at : NULL;
}

static inline int is_digit(place at, place end) { return at < end && (uint8_t)(*at - '0') < 10; }

static inline place digits(place at, place end)
{
    while (is_digit(at, end))
        at++;
    return at;
}

/* An integer as JSON writes it: a sign perhaps, and no zero in front. */
static inline place integer(place at, place end)
{
    at += at < end && *at == '-';
    place first = at;
    at = digits(at, end);
    return at == first || (*first == '0' && at - first > 1) ? NULL : at;
}

static place number(place at, place end)
{
    at = integer(at, end);
    if (at && at < end && *at == '.') {
        if (!is_digit(++at, end))
            return NULL;
        at = digits(at, end);
    }
    if (at && at < end && (*at | 32) == 'e') {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        if (!is_digit(at, end))
            return NULL;
        at = digits(at, end);
    }
    return at;
}

/* Eight digits, 0 to 9 in an octet each, as the number they are: pairs, then fours, then all. */
static inline int64_t eight_digits(uint64_t each)
{
    uint64_t pairs = each * 10 + (each >> 8);
    uint64_t low = (pairs & UINT64_C(0x000000ff000000ff)) * ((UINT64_C(1000000) << 32) + 100);
    uint64_t high = (pairs >> 16 & UINT64_C(0x000000ff000000ff)) * ((UINT64_C(10000) << 32) + 1);
    return (int64_t)((low + high) >> 32);
}

/* The value of an integer as JSON writes it; what follows it, or NULL if there is none or it has too
 * many digits. A word of digits at a time. */
static inline place integer_value(place at, place end, int64_t *value)
{
    static const int64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    int negative = at < end && *at == '-';
    at += negative;
    place first = at;
    int64_t sum = 0, found = WORD;
    while (found == WORD && end - at >= WORD) {
        uint64_t each = word(at) ^ EACH('0');
        found = first_mark((each | (each + EACH(0x80 - 10))) & TOP_BITS);
        if (at - first + found > MAX_DIGITS)
            return NULL;
        if (found)
            sum = sum * powers[found] + eight_digits(each << (64 - 8 * found));
        at += found;
    }
    if (found == WORD)
        for (; is_digit(at, end); at++) {
            if (at - first >= MAX_DIGITS)
                return NULL;
            sum = sum * 10 + (*at - '0');
        }
    *value = negative ? -sum : sum;
    return at == first || (*first == '0' && at - first > 1) ? NULL : at;
}

/* Reads one content; what follows it, or NULL if it is not of the cell's kind. */
static inline place content(const struct cell *cell, int64_t row, place at, place end)
{
    place first = at, yes;
    uint8_t *out = cell->bounds ? cell->octets + cell->bounds[row] : NULL;
    switch (cell->kind) {
    case INTEGER:
        at = integer_value(at, end, cell->numbers + row);
        return at && cell->numbers[row] >= cell->least && cell->numbers[row] <= cell->most ? at : NULL;
    case BOOLEAN:
        yes = literal(at, end, (place) "true\0\0\0\0\0\0\0\0", 4);
        at = yes ? yes : literal(at, end, (place) "false\0\0\0\0\0\0\0\0", 5);
        if (at && cell->octets)
            cell->octets[row] = yes != NULL;
        return at;
    case TEXT:
        at = plain_text(at, end, out);
        break;
    default:
        at = number(at, end);
        if (at && out)
            memcpy(out, first, (size_t)(at - first));
    }
    if (at && out)
        cell->bounds[row + 1] = cell->bounds[row] + (int32_t)(at - first);
    return at;
}

static inline int fits(const struct cell *cells, int64_t cell_count, place behind, int64_t behind_length,
                       int64_t row, place at, place end)
{
    for (int64_t i = 0; i < cell_count; i++) {
        at = literal(at, end, cells[i].before, cells[i].before_length);
        if (at)
            at = content(cells + i, row, at, end);
        if (!at)
            return 0;
    }
    return literal(at, end, behind, behind_length) == end;
}

/* Reads `count` values, of which `starts` and `lengths` say where they lie (-1: a null, which
 * never fits): into the cells, and into `fitting` whether it was an object of exactly these
 * cells. Of one that was not, the cells hold anything. `behind` is followed by a word of anything. */
void read_objects(place data, int64_t count, const int64_t *starts, const int64_t *lengths,
                  const struct cell *cells, int64_t cell_count, place behind, int64_t behind_length,
                  uint8_t *fitting)
{
    for (int64_t row = 0; row < count; row++) {
        place at = data + starts[row];
        for (int64_t i = 0; i < cell_count; i++)
            if (cells[i].bounds)
                cells[i].bounds[row + 1] = cells[i].bounds[row];
        fitting[row] = lengths[row] >= 0 && fits(cells, cell_count, behind, behind_length, row, at, at + lengths[row]);
    }
}

/* --- texts ------------------------------------------------------------------------------- */

/* A bijection of 64 bits in which every bit depends on every other. */
static inline uint64_t mixed(uint64_t bits)
{
    const uint64_t odd = UINT64_C(0xd6e8feb86659fd93);
    bits = (bits ^ bits >> 32) * odd;
    bits = (bits ^ bits >> 32) * odd;
    return bits ^ bits >> 32;
}

/* The hash that stored state is ordered by (`column_hash.py` defines it): of the
 * length, then of each word, the last one filled up with zeros. `at` may be read up to `limit`. */
static inline uint64_t text_hash(place at, int64_t length, place limit)
{
    uint64_t hash = mixed((uint64_t)length);
    for (; length > 0; length -= WORD, at += WORD) {
        uint64_t octets = 0;
        if (limit - at >= WORD)
            octets = word(at);
        else
            for (int64_t i = 0; i < length; i++)
                octets |= (uint64_t)at[i] << 8 * i;
        if (length < WORD)
            octets &= (UINT64_C(1) << 8 * length) - 1;
        hash = mixed(hash * UINT64_C(0x9e3779b97f4a7c15) + octets);
    }
    return hash;
}

/* A text that has its number. */
struct seen {
    uint64_t hash;
    int32_t length;
    int32_t number; /* -1: a free place */
};

#define LEAST_PLACES 1024

static inline uint64_t all_free(struct seen *places, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        places[i].number = -1;
    return count - 1;
}

/* Numbers `count` texts, equal ones alike, in the order in which they first occur: ids[i] is
 * the number of text i, firsts[n] a text of number n, hashes[n] its hash. There is a power of two
 * of places, more than twice `count` and at least LEAST_PLACES. Returns how many distinct ones
 * there are. Among texts of one length that is a word or less, each has a hash of its own. */
int64_t number_texts(place octets, const int32_t *bounds, int64_t count, int64_t *ids, int64_t *firsts,
                     uint64_t *hashes, struct seen *places)
{
    place limit = octets + bounds[count];
    uint64_t mask = all_free(places, LEAST_PLACES);
    int64_t known = 0;
    for (int64_t i = 0; i < count; i++) {
        place text = octets + bounds[i];
        int32_t length = bounds[i + 1] - bounds[i];
        uint64_t hash = text_hash(text, length, limit), at = hash & mask;
        for (; places[at].number >= 0; at = (at + 1) & mask)
            if (places[at].hash == hash && places[at].length == length &&
                (length <= WORD || !memcmp(octets + bounds[firsts[places[at].number]], text, (size_t)length)))
                break;
        if (places[at].number >= 0) {
            ids[i] = places[at].number;
            continue;
        }
        places[at] = (struct seen){hash, length, (int32_t)known};
        firsts[known] = i;
        hashes[known] = hash;
        ids[i] = known++;
        if ((uint64_t)known * 2 <= mask)
            continue;
        mask = all_free(places, (mask + 1) * 2); /* too many for so few places: all find another one */
        for (int64_t each = 0; each < known; each++) {
            at = hashes[each] & mask;
            while (places[at].number >= 0)
                at = (at + 1) & mask;
            const int32_t *bound = bounds + firsts[each];
            places[at] = (struct seen){hashes[each], bound[1] - bound[0], (int32_t)each};
        }
    }
    return known;
}
