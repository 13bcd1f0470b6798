/* Records into batches, by the hash of their keys; `produce.py` says what is put where.
 *
 * As in `kernels.c`, nothing allocates or is kept between calls. The records are trusted: their places
 * are numbers of our own.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef const uint8_t *place;

/* The numbers of a record, as `rows.c` has them, too. */
enum { TOPIC, LETTER, KEY_START, KEY_LENGTH, VALUE_START, VALUE_LENGTH, TIME_DELTA, NUMBERS };

enum { LONGEST_VARINT = 10, RECORD_OVERHEAD = 6 * LONGEST_VARINT + 2 };

/* A batch without its header: `size` of its `room` octets are records. */
struct batch {
    uint8_t *octets;
    int64_t room, size, count, base_timestamp, max_timestamp;
};

/* `unkeyed` is the partition of records that have no key. */
struct topic {
    struct batch *batches;
    int64_t partitions, unkeyed;
};

/* Which batch has no room, and how much a record needs there. */
struct lack {
    int64_t topic, partition, needed;
};

/* Murmur2 as Kafka's own clients use it. */
int64_t hash_key(place key, int64_t length)
{
    const uint32_t multiplier = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ (uint32_t)length;
    for (; length >= 4; key += 4, length -= 4) {
        uint32_t word = (uint32_t)key[0] | (uint32_t)key[1] << 8 | (uint32_t)key[2] << 16 | (uint32_t)key[3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        word *= multiplier;
        hash = hash * multiplier ^ word;
    }
    if (length > 2)
        hash ^= (uint32_t)key[2] << 16;
    if (length > 1)
        hash ^= (uint32_t)key[1] << 8;
    if (length > 0)
        hash = (hash ^ key[0]) * multiplier;
    hash = (hash ^ hash >> 13) * multiplier;
    return (hash ^ hash >> 15) & 0x7fffffff;
}

static uint8_t *put_varint(uint8_t *out, int64_t number)
{
    uint64_t bits = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    for (; bits > 127; bits >>= 7)
        *out++ = (uint8_t)(bits | 128);
    *out++ = (uint8_t)bits;
    return out;
}

static int varint_bytes(int64_t number)
{
    uint64_t bits = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    int count = 1;
    while (bits >>= 7)
        count++;
    return count;
}

/* Octets behind their length, which is -1 for none. */
static uint8_t *put_sized(uint8_t *out, place at, int64_t length)
{
    out = put_varint(out, length);
    if (length > 0)
        memcpy(out, at, (size_t)length);
    return out + (length > 0 ? length : 0);
}

static int64_t plus_length(int64_t length)
{
    return varint_bytes(length) + (length > 0 ? length : 0);
}

static void put_record(struct batch *batch, place key, int64_t key_length, place value, int64_t value_length,
                       int64_t timestamp)
{
    if (!batch->count)
        batch->base_timestamp = batch->max_timestamp = timestamp;
    if (timestamp > batch->max_timestamp)
        batch->max_timestamp = timestamp;
    int64_t delta = timestamp - batch->base_timestamp;
    int64_t size = 2 + varint_bytes(delta) + varint_bytes(batch->count) + plus_length(key_length) +
                   plus_length(value_length);
    uint8_t *out = put_varint(batch->octets + batch->size, size);
    *out++ = 0; /* attributes */
    out = put_varint(out, delta);
    out = put_varint(out, batch->count++);
    out = put_sized(out, key, key_length);
    out = put_sized(out, value, value_length);
    *out++ = 0; /* headers */
    batch->size = out - batch->octets;
}

/* Appends records[begin, end) to the batches of their topics and partitions, and a tombstone behind each
 * whose letter is `d`. Returns the first one whose batch has no room, or `end`. */
int64_t append_records(place data, const int64_t *records, int64_t begin, int64_t end, const struct topic *topics,
                       int64_t timestamp, struct lack *lack)
{
    for (int64_t i = begin; i < end; i++) {
        const int64_t *numbers = records + NUMBERS * i;
        const struct topic *topic = topics + numbers[TOPIC];
        place key = data + numbers[KEY_START];
        int64_t key_length = numbers[KEY_LENGTH], value_length = numbers[VALUE_LENGTH];
        int64_t partition = key_length < 0 ? topic->unkeyed : hash_key(key, key_length) % topic->partitions;
        struct batch *batch = topic->batches + partition;
        int has_tombstone = numbers[LETTER] == 'd' && key_length >= 0;
        int64_t needed = RECORD_OVERHEAD + (key_length > 0 ? key_length : 0) + (value_length > 0 ? value_length : 0);
        if (has_tombstone)
            needed += RECORD_OVERHEAD + key_length;
        if (needed > batch->room - batch->size) {
            lack->topic = numbers[TOPIC];
            lack->partition = partition;
            lack->needed = needed;
            return i;
        }
        int64_t at = timestamp + numbers[TIME_DELTA];
        put_record(batch, key, key_length, data + numbers[VALUE_START], value_length, at);
        if (has_tombstone)
            put_record(batch, key, key_length, NULL, -1, at);
    }
    return end;
}
