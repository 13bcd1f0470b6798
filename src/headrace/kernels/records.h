/* Changes as records: what `rows.c` and `logged.c` have in common. JSON of texts and numbers, keys, and the
 * numbers by which a record is found.
 *
 * Whoever puts something has seen to it that there is room for it. */

#ifndef RECORDS_H
#define RECORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef const uint8_t *place;

struct text {
    place at;
    int64_t length;
};

struct column {
    struct text name; /* as `"name":` */
    int64_t kind;
    int64_t in_key;
    int64_t size, digits; /* as `logged.c` has them, which also has labels */
    const struct text *labels;
    int64_t label_count;
};

/* `source` is what stands between a row and the number of its place in the log. */
struct table {
    int64_t oid;
    const struct column *columns;
    int64_t column_count;
    int64_t name_bytes; /* of all columns; and of what `logged.c` may put besides values */
    struct text source;
    int64_t order; /* of the last change of this table in the transaction */
};

enum stop { ALL_DONE, OUT_OF_ROOM, NOT_PLAIN };

struct outcome {
    int64_t stop;
    int64_t count;
    int64_t out_bytes;
    int64_t last_place;
};

/* The numbers of a record. */
enum { TABLE, OP, KEY_START, KEY_LENGTH, VALUE_START, VALUE_LENGTH, TIME_DELTA, NUMBERS };

enum { NO_VALUE = -1, UNCHANGED = -2 };

struct cell {
    place at;
    int64_t length;
    place json; /* where it was written */
    int64_t json_length;
};

static inline uint64_t big_endian(place at, int bytes)
{
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++)
        bits = bits << 8 | at[i];
    return bits;
}

static inline uint8_t *put(uint8_t *out, const void *octets, int64_t length)
{
    memcpy(out, octets, (size_t)length);
    return out + length;
}

#define PUT(out, literal) put(out, literal, sizeof(literal) - 1)

static inline uint8_t *put_number(uint8_t *out, uint64_t number)
{
    uint8_t digits[20];
    int count = 0;
    do
        digits[count++] = (uint8_t)('0' + number % 10);
    while (number /= 10);
    while (count)
        *out++ = digits[--count];
    return out;
}

static inline uint8_t *put_signed(uint8_t *out, int64_t number)
{
    if (number < 0)
        *out++ = '-';
    return put_number(out, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

/* How many octets the letter at `at` has, which is not of ASCII; 0 if it is not UTF-8. */
static inline int letter_bytes(place at, place end)
{
    int count = *at >= 0xF0 ? 4 : *at >= 0xE0 ? 3 : 2;
    if (*at < 0xC2 || *at > 0xF4 || end - at < count)
        return 0;
    for (int i = 1; i < count; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    if ((*at == 0xE0 && at[1] < 0xA0) || (*at == 0xED && at[1] > 0x9F) || (*at == 0xF0 && at[1] < 0x90) ||
        (*at == 0xF4 && at[1] > 0x8F))
        return 0;
    return count;
}

static inline uint8_t *put_escaped(uint8_t *out, uint8_t octet)
{
    static const char digits[] = "0123456789abcdef";
    *out++ = '\\';
    switch (octet) {
    case '"':
    case '\\':
        *out++ = octet;
        return out;
    case '\b':
        *out++ = 'b';
        return out;
    case '\t':
        *out++ = 't';
        return out;
    case '\n':
        *out++ = 'n';
        return out;
    case '\f':
        *out++ = 'f';
        return out;
    case '\r':
        *out++ = 'r';
        return out;
    }
    out = PUT(out, "u00");
    *out++ = (uint8_t)digits[octet >> 4];
    *out++ = (uint8_t)digits[octet & 15];
    return out;
}

#define EACH(octet) (0x0101010101010101u * (uint64_t)(octet))

/* Whether eight octets have one that is not of ASCII, a control character, a quote or a backslash.
 * May err to the safe side. */
static inline int has_special(place at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    uint64_t quote = word ^ EACH('"'), backslash = word ^ EACH('\\');
    return ((word | (word - EACH(' ')) | ((quote - EACH(1)) & ~quote) | ((backslash - EACH(1)) & ~backslash)) &
            EACH(0x80)) != 0;
}

static inline uint8_t *put_text(uint8_t *out, place at, place end)
{
    *out++ = '"';
    while (at < end) {
        if (end - at >= 8 && !has_special(at)) {
            memcpy(out, at, 8);
            out += 8;
            at += 8;
        } else if (*at >= 0x80) {
            int count = letter_bytes(at, end);
            if (!count)
                return NULL;
            out = put(out, at, count);
            at += count;
        } else if (*at < ' ' || *at == '"' || *at == '\\') {
            out = put_escaped(out, *at++);
        } else {
            *out++ = *at++;
        }
    }
    *out++ = '"';
    return out;
}

static inline int is_digit(uint8_t octet)
{
    return octet >= '0' && octet <= '9';
}

static inline place skip_digits(place at, place end)
{
    while (at < end && is_digit(*at))
        at++;
    return at;
}

/* A whole number as it is written, of at most 18 digits; NULL for any other text. */
static inline uint8_t *put_integer_text(uint8_t *out, place at, place end)
{
    place digits = at + (*at == '-');
    int is_plain = digits < end && skip_digits(digits, end) == end;
    if (!is_plain || (digits > at && (*digits == '0' || end - digits > 18)))
        return NULL;
    return put(out, at, end - at);
}

/* Two digits; -1 if they are none. */
static inline int pair(place at)
{
    return is_digit(at[0]) && is_digit(at[1]) ? (at[0] - '0') * 10 + at[1] - '0' : -1;
}

static inline uint8_t *put_part(uint8_t *out, struct text text)
{
    return put(out, text.at, text.length);
}

static inline int has_same_key(const struct table *table, const struct cell *one, const struct cell *other)
{
    for (int64_t i = 0; i < table->column_count; i++)
        if (table->columns[i].in_key && (one[i].json_length != other[i].json_length ||
                                         memcmp(one[i].json, other[i].json, (size_t)one[i].json_length)))
            return 0;
    return 1;
}

/* The key of a row that was written; nothing if the table has none. */
static inline uint8_t *put_key(uint8_t *out, const struct table *table, const struct cell *cells)
{
    uint8_t *begin = out;
    for (int64_t i = 0; i < table->column_count; i++) {
        if (!table->columns[i].in_key)
            continue;
        uint8_t first = out == begin ? '{' : ',';
        *out++ = first;
        out = put(out, table->columns[i].name.at, table->columns[i].name.length);
        out = put(out, cells[i].json, cells[i].json_length);
    }
    if (out > begin)
        *out++ = '}';
    return out;
}

/* Notes a record of `out`: a value, the key behind it, and where that ends. */
static inline void note_record(int64_t *numbers, int64_t table, uint8_t op, place out, place value, place key,
                               place end)
{
    numbers[TABLE] = table;
    numbers[OP] = op;
    numbers[KEY_START] = key - out;
    numbers[KEY_LENGTH] = end > key ? end - key : -1;
    numbers[VALUE_START] = value - out;
    numbers[VALUE_LENGTH] = key - value;
    numbers[TIME_DELTA] = 0;
}

/* Days since 1970 of a date of the Gregorian calendar. */
static inline int64_t civil_days(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = year / 400, of_era = year % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

#endif
