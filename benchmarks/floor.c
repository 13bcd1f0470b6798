/* The least that a broker that syncs can take: floor PORT DIRECTORY
 *
 * Serves one librdkafka client of log_client.py, and nobody else: records are written where they
 * belong, synced, and sent to whoever waits for them, by one thread that does nothing else. There
 * are no groups, no errors, no recovery, no limits; it trusts its client. What it takes is the
 * kernel's, the disk's and the client's time. For a record that is sent alone there is little to
 * save below that. For many it is no limit: it does not receive while it syncs, as a broker can.
 *
 * Of each API one old version is served whose strings have two bytes of length, as Kafka's
 * protocol had them at first: ApiVersions 0, Metadata 1, FindCoordinator 0, CreateTopics 0,
 * DeleteTopics 0, Produce 3, Fetch 4.
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TOPICS = 64, MOST_PARTITIONS = 16, MOST_CONNECTIONS = 64, MOST_NAME = 250 };
enum { PRODUCE = 0, FETCH = 1, METADATA = 3, FIND_COORDINATOR = 10, API_VERSIONS = 18, CREATE = 19, DELETE = 20 };
enum { FRAME_BYTES = 4 << 20, ANSWER_BYTES = 8 << 20, ZERO_BYTES = 1 << 20, SMALL_BYTES = 16 << 10, TICK_MS = 20 };

struct batch {
    int64_t offset, position;
};

struct partition {
    int file;
    int64_t next_offset, end, zeroed; /* what follows `end` is zeros up to `zeroed`: such syncs are faster */
    struct batch *batches;
    int64_t count, room;
};

struct topic {
    char name[MOST_NAME];
    int32_t partition_count;
    struct partition partitions[MOST_PARTITIONS];
};

struct connection {
    int socket; /* 0 if there is none */
    uint8_t *received;
    int64_t size;
    uint8_t *fetch; /* one that waits, until `deadline`; none if its size is 0 */
    int64_t fetch_size;
    double deadline;
};

static struct topic topics[MOST_TOPICS];
static int topic_count;
static struct connection connections[MOST_CONNECTIONS];
static int port;
static const char *directory;
static uint8_t *answer, *at; /* what is being written, and where */
static uint8_t zeros[ZERO_BYTES];

/* --- reading and writing ------------------------------------------------------------------ */

static int64_t number(const uint8_t **from, int bytes)
{
    uint64_t value = **from & 128 ? UINT64_MAX : 0;
    while (bytes--)
        value = value << 8 | *(*from)++;
    return (int64_t)value;
}

static void put(int64_t value, int bytes)
{
    for (int i = bytes; i--; value >>= 8)
        at[i] = (uint8_t)value;
    at += bytes;
}

static void put_text(const void *text, int64_t size)
{
    put(size, 2);
    memcpy(at, text, (size_t)size);
    at += size;
}

static const char *text(const uint8_t **from, int64_t *size)
{
    *size = number(from, 2);
    const char *found = (const char *)*from;
    *from += *size > 0 ? *size : 0;
    return found;
}

static void begin_answer(const uint8_t *correlation_id)
{
    at = answer + 4;
    memcpy(at, correlation_id, 4);
    at += 4;
}

static void send_answer(int socket)
{
    uint8_t *end = at, *from = answer;
    at = answer;
    put(end - answer - 4, 4);
    while (from < end) {
        ssize_t sent = write(socket, from, (size_t)(end - from));
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return;
        from += sent > 0 ? sent : 0;
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void must(int works, const char *what)
{
    if (!works) {
        perror(what);
        exit(1);
    }
}

/* --- topics ------------------------------------------------------------------------------- */

static struct topic *find(const char *name, int64_t size)
{
    for (int i = 0; i < topic_count; i++)
        if ((int64_t)strlen(topics[i].name) == size && !memcmp(topics[i].name, name, (size_t)size))
            return &topics[i];
    return NULL;
}

static void write_zeros(struct partition *partition)
{
    if (partition->zeroed < partition->end)
        partition->zeroed = partition->end;
    if (partition->zeroed - partition->end >= ZERO_BYTES / 16)
        return;
    must(pwrite(partition->file, zeros, ZERO_BYTES, partition->zeroed) == ZERO_BYTES, "zeros");
    must(!fdatasync(partition->file), "sync");
    partition->zeroed += ZERO_BYTES;
}

static void create(const uint8_t *request)
{
    int64_t size;
    must(number(&request, 4) == 1 && topic_count < MOST_TOPICS, "one topic at a time");
    const char *name = text(&request, &size);
    struct topic *topic = &topics[topic_count++];
    memset(topic, 0, sizeof *topic);
    memcpy(topic->name, name, (size_t)size);
    topic->partition_count = (int32_t)number(&request, 4);
    for (int i = 0; i < topic->partition_count; i++) {
        struct partition *partition = &topic->partitions[i];
        char path[1024];
        snprintf(path, sizeof path, "%s/%s-%d", directory, topic->name, i);
        partition->file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0640);
        must(partition->file >= 0 && !unlink(path), path);
        write_zeros(partition);
    }
    put(1, 4);
    put_text(name, size);
    put(0, 2);
}

static void delete(const uint8_t *request)
{
    int64_t size;
    must(number(&request, 4) == 1, "one topic at a time");
    const char *name = text(&request, &size);
    struct topic *topic = find(name, size);
    for (int i = 0; topic && i < topic->partition_count; i++) {
        close(topic->partitions[i].file);
        free(topic->partitions[i].batches);
    }
    if (topic)
        *topic = topics[--topic_count];
    put(1, 4);
    put_text(name, size);
    put(topic ? 0 : 3, 2);
}

static void describe(const uint8_t *request)
{
    int64_t count = number(&request, 4), size;
    put(1, 4), put(1, 4), put_text("127.0.0.1", 9), put(port, 4), put(-1, 2); /* the only broker, without a rack */
    put(1, 4);
    put(count < 0 ? 0 : count, 4);
    for (int64_t i = 0; i < count; i++) {
        const char *name = text(&request, &size);
        struct topic *topic = find(name, size);
        int32_t partitions = topic ? topic->partition_count : 0;
        put(topic ? 0 : 3, 2), put_text(name, size), put(0, 1), put(partitions, 4);
        for (int j = 0; j < partitions; j++) {
            put(0, 2), put(j, 4), put(1, 4);
            put(1, 4), put(1, 4), put(1, 4), put(1, 4); /* its replicas, and those in sync: the only broker */
        }
    }
}

/* --- records ------------------------------------------------------------------------------ */

static void append(struct partition *partition, uint8_t *records, int64_t size)
{
    int64_t position = partition->end, end = position + size;
    for (uint8_t *batch = records; position < end;) {
        const uint8_t *length = batch + 8, *last_delta = batch + 23;
        if (partition->count == partition->room) {
            partition->room = partition->room ? 2 * partition->room : 1024;
            partition->batches = realloc(partition->batches, (size_t)partition->room * sizeof(struct batch));
            must(partition->batches != NULL, "memory");
        }
        partition->batches[partition->count++] = (struct batch){partition->next_offset, position};
        uint64_t offset = htobe64((uint64_t)partition->next_offset);
        memcpy(batch, &offset, sizeof offset);
        memset(batch + 12, 0, 4);
        int64_t batch_size = number(&length, 4) + 12;
        partition->next_offset += number(&last_delta, 4) + 1;
        position += batch_size;
        batch += batch_size;
    }
    must(pwrite(partition->file, records, (size_t)size, partition->end) == size, "write");
    must(!fdatasync(partition->file), "sync");
    partition->end = end;
}

/* The batches from the one that holds `offset` on, whole ones and at least one; their size. */
static int64_t read_from(struct partition *partition, int64_t offset, int64_t most)
{
    int64_t low = 0, high = partition->count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        *(partition->batches[middle].offset <= offset ? &low : &high) = middle;
    }
    int64_t start = partition->batches[low].position, end = start;
    for (int64_t i = low + 1; i <= partition->count; i++) {
        int64_t next = i < partition->count ? partition->batches[i].position : partition->end;
        if (end > start && next - start > most)
            break;
        end = next;
    }
    int64_t size = end - start;
    must(pread(partition->file, at, (size_t)size, start) == size, "read");
    at += size;
    return size;
}

/* Answers a fetch, if there is something or it must be; whether it did. */
static int answer_fetch(struct connection *connection, const uint8_t *frame, int even_so)
{
    const uint8_t *correlation_id = frame + 4, *request = frame + 8;
    int64_t size, sent = 0;
    text(&request, &size);
    number(&request, 4);
    int64_t wait_ms = number(&request, 4);
    request += 4 + 4 + 1; /* bytes at least and at most, isolation level */
    begin_answer(correlation_id);
    int64_t topics_asked = number(&request, 4);
    put(0, 4), put(topics_asked, 4);
    while (topics_asked--) {
        const char *name = text(&request, &size);
        struct topic *topic = find(name, size);
        int64_t count = number(&request, 4);
        put_text(name, size), put(count, 4);
        while (count--) {
            int64_t index = number(&request, 4), offset = number(&request, 8), most = number(&request, 4);
            struct partition *partition = topic ? &topic->partitions[index] : NULL;
            int64_t end = partition ? partition->next_offset : -1;
            put(index, 4), put(partition ? 0 : 3, 2), put(end, 8), put(end, 8), put(0, 4);
            uint8_t *length = at;
            put(0, 4);
            even_so |= !partition;
            if (!partition || offset >= end || sent >= ANSWER_BYTES)
                continue;
            int64_t found = read_from(partition, offset, most < ANSWER_BYTES ? most : ANSWER_BYTES);
            sent += found;
            uint8_t *behind = at;
            at = length;
            put(found, 4);
            at = behind;
        }
    }
    if (!sent && !even_so) {
        connection->deadline = now() + (double)wait_ms / 1000;
        return 0;
    }
    send_answer(connection->socket);
    return 1;
}

static void produce(struct connection *connection, uint8_t *frame, const uint8_t *request)
{
    int64_t size;
    struct partition *grown = NULL;
    uint8_t accepted[1024];
    text(&request, &size); /* of a transaction */
    request += 2 + 4;      /* acknowledgements, time-out */
    begin_answer(frame + 4);
    int64_t count = number(&request, 4);
    put(count, 4);
    while (count--) {
        const char *name = text(&request, &size);
        struct topic *topic = find(name, size);
        must(topic != NULL, "produced to a topic that is not there");
        int64_t partitions = number(&request, 4);
        put_text(name, size), put(partitions, 4);
        while (partitions--) {
            int64_t index = number(&request, 4), bytes = number(&request, 4);
            struct partition *partition = &topic->partitions[index];
            put(index, 4), put(0, 2), put(partition->next_offset, 8), put(-1, 8);
            append(partition, frame + (request - frame), bytes);
            request += bytes;
            if (bytes < SMALL_BYTES)
                grown = partition;
        }
    }
    put(0, 4);
    int64_t written = at - answer;
    must(written <= (int64_t)sizeof accepted, "an answer of so many partitions");
    memcpy(accepted, answer, (size_t)written);
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (connections[i].socket && connections[i].fetch_size && answer_fetch(&connections[i], connections[i].fetch, 0))
            connections[i].fetch_size = 0;
    memcpy(answer, accepted, (size_t)written);
    at = answer + written;
    send_answer(connection->socket);
    if (grown)
        write_zeros(grown);
}

/* --- requests ----------------------------------------------------------------------------- */

static void serve(struct connection *connection, uint8_t *frame, int64_t frame_size)
{
    static const int16_t served[][3] = {{PRODUCE, 0, 3},      {FETCH, 0, 4},  {METADATA, 0, 1}, {FIND_COORDINATOR, 0, 0},
                                        {API_VERSIONS, 0, 0}, {CREATE, 0, 0}, {DELETE, 0, 0}};
    const int apis = sizeof served / sizeof served[0];
    const uint8_t *request = frame;
    int64_t api = number(&request, 2), version = number(&request, 2), size;
    request += 4;
    text(&request, &size);
    if (api == PRODUCE) {
        produce(connection, frame, request);
        return;
    }
    if (api == FETCH) {
        if (!answer_fetch(connection, frame, 0)) {
            memcpy(connection->fetch, frame, (size_t)frame_size);
            connection->fetch_size = frame_size;
        }
        return;
    }
    begin_answer(frame + 4);
    if (api == API_VERSIONS) {
        put(version ? 35 : 0, 2), put(apis, 4); /* a newer one is told to ask for the oldest */
        for (int i = 0; i < apis; i++)
            put(served[i][0], 2), put(served[i][1], 2), put(served[i][2], 2);
    } else if (api == METADATA)
        describe(request);
    else if (api == CREATE)
        create(request);
    else if (api == DELETE)
        delete (request);
    else if (api == FIND_COORDINATOR)
        put(0, 2), put(1, 4), put_text("127.0.0.1", 9), put(port, 4);
    else
        return;
    send_answer(connection->socket);
}

static void receive(struct connection *connection)
{
    uint8_t *from = connection->received;
    ssize_t count = recv(connection->socket, from + connection->size, (size_t)(FRAME_BYTES - connection->size), 0);
    if (count <= 0) {
        close(connection->socket);
        connection->socket = 0;
        return;
    }
    connection->size += count;
    uint8_t *end = from + connection->size;
    while (end - from >= 4) {
        const uint8_t *frame = from;
        int64_t size = number(&frame, 4);
        must(size > 8 && size <= FRAME_BYTES - 4, "a frame of that size");
        if (end - from < 4 + size)
            break;
        serve(connection, from + 4, size);
        from += 4 + size;
    }
    connection->size = end - from;
    memmove(connection->received, from, (size_t)connection->size);
}

static void welcome(int listener, int events)
{
    int one = 1, place = 0;
    while (connections[place].socket)
        must(++place < MOST_CONNECTIONS, "so many connections");
    struct connection *connection = &connections[place];
    if (!connection->received) {
        connection->received = malloc(FRAME_BYTES);
        connection->fetch = malloc(FRAME_BYTES);
    }
    connection->socket = accept(listener, NULL, NULL);
    must(connection->socket > 0 && connection->received && connection->fetch, "accept");
    connection->size = connection->fetch_size = 0;
    setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    must(!epoll_ctl(events, EPOLL_CTL_ADD, connection->socket, &event), "epoll");
}

int main(int count, char **arguments)
{
    must(count == 3, "floor PORT DIRECTORY");
    signal(SIGPIPE, SIG_IGN); /* a client may have left while its answer was made */
    port = atoi(arguments[1]);
    directory = arguments[2];
    answer = malloc(2 * ANSWER_BYTES + FRAME_BYTES);
    int listener = socket(AF_INET, SOCK_STREAM, 0), events = epoll_create1(0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(answer && !bind(listener, (struct sockaddr *)&here, sizeof here) && !listen(listener, 64), "listen");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, happened[16];
    must(!epoll_ctl(events, EPOLL_CTL_ADD, listener, &event), "epoll");
    for (;;) {
        int ready = epoll_wait(events, happened, 16, TICK_MS);
        for (int i = 0; i < ready; i++)
            if (happened[i].data.ptr)
                receive(happened[i].data.ptr);
            else
                welcome(listener, events);
        double time = now();
        for (int i = 0; i < MOST_CONNECTIONS; i++)
            if (connections[i].socket && connections[i].fetch_size && time > connections[i].deadline) {
                answer_fetch(&connections[i], connections[i].fetch, 1);
                connections[i].fetch_size = 0;
            }
    }
}
