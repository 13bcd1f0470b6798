/* Rows of MySQL's and MariaDB's binary log as JSON, an event at a time, and those that a query answers, many at
 * a time; `logged.py` says what they become.
 *
 * As in `rows.c`: what is not plain is left to Python, row by row, so nothing here has to be complete and a
 * doubt is a reason to stop. Nothing allocates or is kept between calls, and no length in the data is
 * believed: a row is first cut into cells, which is where all bounds are checked, and then written.
 */

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "records.h"

enum { MOST_COLUMNS = 1600, MOST_DECIMAL_BYTES = 32, MOST_DECIMAL_DIGITS = 65 };

/* Of a column, `size` is how many octets a value has, or how many its length has where that stands before it;
 * `digits` is said behind each kind that has them. */
enum kind {
    SIGNED,
    UNSIGNED,
    YEAR,
    FLOAT,
    DOUBLE,
    DECIMAL, /* those of the number, times 256, and those behind the point */
    BIT,
    BITS,
    DATE,
    TIME, /* of a second's fraction */
    DATETIME, /* the same */
    TIMESTAMP, /* the same */
    ENUM,
    SET,
    COUNTED, /* those from here on have a length */
    UTF8 = COUNTED,
    ASCII,
    LETTERS, /* of an octet each, of which the labels are those from 128 on */
    BYTES, /* how many octets a value has at least: the log leaves zeros at its end out */
};

/* What the changes of an event have in common: a value is
 *
 *     {"before": … ,"after": … SOURCE row BEHIND_ROW total BETWEEN_ORDERS order END
 *
 * with the numbers of the row in the event, and of the change in the transaction and among those of its table.
 */
struct event {
    int64_t op;
    struct text behind_row, between_orders, end;
    int64_t row; /* of the next one */
    int64_t total;
};

static inline uint64_t little_endian(place at, int64_t bytes)
{
    uint64_t bits = 0;
    while (bytes--)
        bits = bits << 8 | at[bytes];
    return bits;
}

/* --- one value --------------------------------------------------------------------------- */

static uint8_t *put_integer(uint8_t *out, const struct cell *cell)
{
    int unused = 64 - 8 * (int)cell->length;
    return put_signed(out, (int64_t)(little_endian(cell->at, cell->length) << unused) >> unused);
}

/* The digits of a number, which has no more than those. */
static uint8_t *put_digits(uint8_t *out, uint64_t number, int count)
{
    for (int i = count - 1; i >= 0; i--, number /= 10)
        out[i] = (uint8_t)('0' + number % 10);
    return number ? NULL : out + count;
}

/* Digits and the power of ten of the first one, as a number with a fraction; NULL for a large one, of whose
 * power JSON's writers think differently. */
static uint8_t *put_fraction(uint8_t *out, const char *digits, int count, int exponent)
{
    if (exponent > 15)
        return NULL;
    if (exponent < -5) {
        *out++ = (uint8_t)digits[0];
        if (count > 1) {
            *out++ = '.';
            out = put(out, digits + 1, count - 1);
        }
        *out++ = 'e';
        return put_signed(out, exponent);
    }
    if (exponent < 0) {
        out = PUT(out, "0.");
        for (int i = -1; i > exponent; i--)
            *out++ = '0';
        return put(out, digits, count);
    }
    for (int i = 0; i <= exponent || i < count; i++) {
        if (i == exponent + 1)
            *out++ = '.';
        *out++ = i < count ? (uint8_t)digits[i] : '0';
    }
    return count <= exponent + 1 ? PUT(out, ".0") : out;
}

/* A number with the fewest digits that mean it, from `least` of them on. */
static uint8_t *put_shortest(uint8_t *out, double number, int least, int most, int is_single)
{
    if (!isfinite(number))
        return PUT(out, "null");
    if (signbit(number)) {
        *out++ = '-';
        number = -number;
    }
    if (number == 0)
        return PUT(out, "0.0");
    if (number < DBL_MIN)
        return NULL;
    for (int count = least; count <= most; count++) {
        char text[40], digits[20];
        snprintf(text, sizeof text, "%.*e", count - 1, number);
        double read = strtod(text, NULL);
        if (is_single ? (float)read != (float)number : read != number)
            continue;
        if (text[1] != '.') /* as some languages write it otherwise */
            return NULL;
        digits[0] = text[0];
        memcpy(digits + 1, text + 2, (size_t)count - 1);
        int exponent = atoi(text + count + 2);
        int is_power = frexp(number, &(int){0}) == 0.5;
        if (is_power && count > 15) /* its neighbours are not equally far away */
            return NULL;
        while (count > 1 && digits[count - 1] == '0')
            count--;
        return put_fraction(out, digits, count, exponent);
    }
    return NULL;
}

static uint8_t *put_float(uint8_t *out, place at)
{
    uint32_t bits = (uint32_t)little_endian(at, 4);
    float number;
    memcpy(&number, &bits, sizeof number);
    return put_shortest(out, number, 6, 9, 1);
}

static uint8_t *put_double(uint8_t *out, place at)
{
    uint64_t bits = little_endian(at, 8);
    double number;
    memcpy(&number, &bits, sizeof number);
    return put_shortest(out, number, 15, 17, 0);
}

/* So many digits in as few octets as hold them; NULL if there are more. */
static uint8_t *put_group(uint8_t *out, place *at, int digits)
{
    static const int octets_of[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4};
    uint64_t group = big_endian(*at, octets_of[digits]);
    *at += octets_of[digits];
    return put_digits(out, group, digits);
}

/* Digits by nines; what is left over stands before them, or behind. */
static uint8_t *put_groups(uint8_t *out, place *at, int digits, int is_behind)
{
    int rest = digits % 9;
    if (rest && !is_behind)
        out = put_group(out, at, rest);
    for (int nines = digits / 9; out && nines; nines--)
        out = put_group(out, at, 9);
    return out && rest && is_behind ? put_group(out, at, rest) : out;
}

/* The first bit is for the sign; below zero, all others are turned. */
static uint8_t *put_decimal(uint8_t *out, const struct cell *cell, int64_t digits)
{
    uint8_t octets[MOST_DECIMAL_BYTES], said[MOST_DECIMAL_DIGITS + 9];
    int scale = (int)(digits & 255), whole = (int)(digits >> 8) - scale;
    int is_negative = !(*cell->at & 0x80);
    for (int64_t i = 0; i < cell->length; i++)
        octets[i] = cell->at[i] ^ (is_negative ? 0xFF : 0);
    octets[0] ^= 0x80;
    place at = octets;
    uint8_t *first = said, *end = put_groups(said, &at, whole, 0);
    if (!end)
        return NULL;
    while (first < end && *first == '0')
        first++;
    *out++ = '"';
    if (is_negative)
        *out++ = '-';
    if (first == end)
        *out++ = '0';
    out = put(out, first, end - first);
    if (scale) {
        *out++ = '.';
        out = put_groups(out, &at, scale, 1);
        if (!out)
            return NULL;
    }
    *out++ = '"';
    return out;
}

/* In base64, with zeros behind it until there are `least` octets. */
static uint8_t *put_bytes(uint8_t *out, place at, int64_t length, int64_t least)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int64_t all = length > least ? length : least;
    *out++ = '"';
    for (int64_t i = 0; i < all; i += 3) {
        uint32_t bits = 0;
        for (int64_t k = i; k < i + 3; k++)
            bits = bits << 8 | (k < length ? at[k] : 0);
        for (int k = 0; k < 4; k++)
            *out++ = i + k <= all ? (uint8_t)digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    *out++ = '"';
    return out;
}

/* The lowest octet first. */
static uint8_t *put_bits(uint8_t *out, const struct cell *cell)
{
    uint8_t turned[8];
    for (int64_t i = 0; i < cell->length; i++)
        turned[i] = cell->at[cell->length - 1 - i];
    return put_bytes(out, turned, cell->length, 0);
}

/* --- days and times ------------------------------------------------------------------------ */

static const int64_t DAY_S = 86400;

static int is_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

enum day { NO_DAY, A_DAY, ANOTHER_CALENDAR };

/* Days since 1970, if it is a day: MySQL has days without a month, and of a month of 31 days always. */
static enum day days_of(int64_t year, int64_t month, int64_t day, int64_t *days)
{
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (!year || !month || !day)
        return NO_DAY;
    if (year > 9999 || month > 12 || day > lengths[month - 1] + (month == 2 && is_leap(year)))
        return ANOTHER_CALENDAR;
    *days = civil_days(year, month, day);
    return A_DAY;
}

static uint8_t *put_date(uint8_t *out, place at)
{
    int64_t packed = (int64_t)little_endian(at, 3), days;
    enum day day = days_of(packed >> 9, packed >> 5 & 15, packed & 31, &days);
    if (day != A_DAY)
        return day == NO_DAY ? PUT(out, "null") : NULL;
    return put_signed(out, days);
}

/* Microseconds of the fraction, which has two digits in an octet. */
static int64_t micros_of(place at, int64_t octets)
{
    int64_t micros = (int64_t)big_endian(at, (int)octets);
    for (int64_t i = octets; i < 3; i++)
        micros *= 100;
    return micros;
}

static int64_t seconds_of(int64_t clock)
{
    return (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63);
}

/* One number for both parts, above the middle of its range if it is not negative. */
static uint8_t *put_time(uint8_t *out, const struct cell *cell)
{
    int bits = 8 * (int)(cell->length - 3);
    int64_t packed = (int64_t)big_endian(cell->at, (int)cell->length) - ((int64_t)1 << (23 + bits));
    int64_t size = packed < 0 ? -packed : packed, fraction = size & (((int64_t)1 << bits) - 1);
    for (int64_t octets = cell->length - 3; octets < 3; octets++)
        fraction *= 100;
    int64_t micros = seconds_of(size >> bits & 0x3FFFFF) * 1000000 + fraction;
    return put_signed(out, packed < 0 ? -micros : micros);
}

/* In milliseconds with up to three digits of a second's fraction, else in microseconds. */
static uint8_t *put_since_1970(uint8_t *out, int64_t seconds, int64_t micros, int64_t digits)
{
    return put_signed(out, digits <= 3 ? seconds * 1000 + micros / 1000 : seconds * 1000000 + micros);
}

static uint8_t *put_datetime(uint8_t *out, const struct cell *cell, int64_t digits)
{
    int64_t packed = (int64_t)big_endian(cell->at, 5) - ((int64_t)1 << 39), days;
    if (packed < 0)
        return NULL;
    int64_t months = packed >> 22;
    enum day day = days_of(months / 13, months % 13, packed >> 17 & 31, &days);
    if (day != A_DAY)
        return day == NO_DAY ? PUT(out, "null") : NULL;
    int64_t seconds = days * DAY_S + seconds_of(packed & 0x1FFFF);
    return put_since_1970(out, seconds, micros_of(cell->at + 5, cell->length - 5), digits);
}

/* Null for the beginning of 1970, which stands for no moment. */
static uint8_t *put_moment(uint8_t *out, int64_t seconds, int64_t micros, int64_t digits)
{
    if (!seconds && !micros)
        return PUT(out, "null");
    if (seconds < 0 || micros > 999999)
        return NULL;
    int64_t day = seconds / DAY_S + 719468, second = seconds % DAY_S; /* since the first of March, 0000 */
    int64_t era = day / 146097, of_era = day % 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    *out++ = '"';
    out = put_digits(out, (uint64_t)(year + era * 400 + (month >= 10)), 4);
    *out++ = '-';
    out = put_digits(out, (uint64_t)(month < 10 ? month + 3 : month - 9), 2);
    *out++ = '-';
    out = put_digits(out, (uint64_t)(of_year - (153 * month + 2) / 5 + 1), 2);
    *out++ = 'T';
    out = put_digits(out, (uint64_t)(second / 3600), 2);
    *out++ = ':';
    out = put_digits(out, (uint64_t)(second / 60 % 60), 2);
    *out++ = ':';
    out = put_digits(out, (uint64_t)(second % 60), 2);
    if (digits) {
        *out++ = '.';
        put_digits(out, (uint64_t)micros, 6); /* there is room for all of them */
        out += digits;
    }
    return PUT(out, "Z\"");
}

static uint8_t *put_timestamp(uint8_t *out, const struct cell *cell, int64_t digits)
{
    int64_t seconds = (int64_t)big_endian(cell->at, 4);
    return put_moment(out, seconds, micros_of(cell->at + 4, cell->length - 4), digits);
}

/* --- labels ------------------------------------------------------------------------------ */

static uint8_t *put_enum(uint8_t *out, const struct cell *cell, const struct column *column)
{
    uint64_t number = little_endian(cell->at, cell->length);
    if (number > (uint64_t)column->label_count)
        return NULL;
    *out++ = '"';
    if (number)
        out = put_part(out, column->labels[number - 1]);
    *out++ = '"';
    return out;
}

static uint8_t *put_set(uint8_t *out, const struct cell *cell, const struct column *column)
{
    uint64_t bits = little_endian(cell->at, cell->length);
    if (column->label_count < 64 && bits >> column->label_count)
        return NULL;
    *out++ = '"';
    for (int64_t i = 0, is_first = 1; i < column->label_count; i++) {
        if (!(bits >> i & 1))
            continue;
        if (!is_first)
            *out++ = ',';
        out = put_part(out, column->labels[i]);
        is_first = 0;
    }
    *out++ = '"';
    return out;
}

static uint8_t *put_ascii(uint8_t *out, place at, place end)
{
    for (place each = at; each < end; each++)
        if (*each >= 0x80)
            return NULL;
    return put_text(out, at, end);
}

static uint8_t *put_letters(uint8_t *out, const struct cell *cell, const struct text *letters)
{
    *out++ = '"';
    for (place at = cell->at, end = at + cell->length; at < end; at++) {
        if (*at >= 0x80)
            out = put_part(out, letters[*at - 0x80]);
        else if (*at < ' ' || *at == '"' || *at == '\\')
            out = put_escaped(out, *at);
        else
            *out++ = *at;
    }
    *out++ = '"';
    return out;
}

/* The value as JSON, and where it ends; NULL if it is for Python to look at. At most six octets for each of its
 * own, and what `logged.py` reckons for its column. */
static uint8_t *put_value(uint8_t *out, const struct cell *cell, const struct column *column)
{
    place at = cell->at;
    switch (column->kind) {
    case SIGNED:
        return put_integer(out, cell);
    case UNSIGNED:
        return put_number(out, little_endian(at, cell->length));
    case YEAR:
        return put_number(out, *at ? *at + 1900u : 0);
    case FLOAT:
        return put_float(out, at);
    case DOUBLE:
        return put_double(out, at);
    case DECIMAL:
        return put_decimal(out, cell, column->digits);
    case BIT:
        return *at & 1 ? PUT(out, "true") : PUT(out, "false");
    case BITS:
        return put_bits(out, cell);
    case DATE:
        return put_date(out, at);
    case TIME:
        return put_time(out, cell);
    case DATETIME:
        return put_datetime(out, cell, column->digits);
    case TIMESTAMP:
        return put_timestamp(out, cell, column->digits);
    case ENUM:
        return put_enum(out, cell, column);
    case SET:
        return put_set(out, cell, column);
    case UTF8:
        return put_text(out, at, at + cell->length);
    case ASCII:
        return put_ascii(out, at, at + cell->length);
    case LETTERS:
        return put_letters(out, cell, column->labels);
    case BYTES:
        return put_bytes(out, at, cell->length, column->digits);
    }
    return NULL;
}

/* --- rows -------------------------------------------------------------------------------- */

/* The value of a column that stands at `at`, and what follows it; NULL if it does not fit. */
static place read_cell(place at, place end, const struct column *column, struct cell *cell)
{
    int64_t length = column->size;
    if (column->kind >= COUNTED) {
        if (end - at < column->size)
            return NULL;
        length = (int64_t)little_endian(at, column->size);
        at += column->size;
    }
    if (length > end - at)
        return NULL;
    cell->at = at;
    cell->length = length;
    return at + length;
}

/* The cells of a row, which begins with a bit for each that is null, and what follows it; NULL if it does not
 * fit. */
static place read_cells(place at, place end, const struct table *table, struct cell *cells)
{
    place nulls = at;
    if (end - at < (table->column_count + 7) / 8)
        return NULL;
    at += (table->column_count + 7) / 8;
    for (int64_t i = 0; i < table->column_count; i++) {
        if (nulls[i / 8] >> (i % 8) & 1)
            cells[i].length = NO_VALUE;
        else if (!(at = read_cell(at, end, table->columns + i, cells + i)))
            return NULL;
    }
    return at;
}

typedef uint8_t *put_value_of(uint8_t *out, const struct cell *cell, const struct column *column);

static inline uint8_t *put_row(uint8_t *out, const struct table *table, struct cell *cells, put_value_of *put_value_of)
{
    *out++ = '{';
    for (int64_t i = 0; i < table->column_count; i++) {
        if (i)
            *out++ = ',';
        out = put_part(out, table->columns[i].name);
        cells[i].json = out;
        out = cells[i].length == NO_VALUE ? PUT(out, "null") : put_value_of(out, cells + i, table->columns + i);
        if (!out)
            return NULL;
        cells[i].json_length = out - cells[i].json;
    }
    *out++ = '}';
    return out;
}

/* Room that a change of these octets surely fits into: its rows, one of them once more for the key, and numbers. */
static int64_t needed(const struct table *table, const struct event *event, int64_t octets)
{
    return 12 * octets + 3 * table->name_bytes + table->source.length + event->behind_row.length +
           event->between_orders.length + event->end.length + 256;
}

/* Both rows of a change as members of its envelope, of which one may be missing. */
static uint8_t *put_rows(uint8_t *out, const struct table *table, struct cell *before, struct cell *after)
{
    out = PUT(out, "{\"before\":");
    out = before ? put_row(out, table, before, put_value) : PUT(out, "null");
    if (!out)
        return NULL;
    out = PUT(out, ",\"after\":");
    out = after ? put_row(out, table, after, put_value) : PUT(out, "null");
    return out && before && after && !has_same_key(table, before, after) ? NULL : out;
}

/* Encodes the changes of data[begin, size), which are rows of one event one behind the other, as long as they are
 * plain and there is room for them, as `encode_changes` does. Returns how many octets of the data are done. */
int64_t encode_logged(place data, int64_t begin, int64_t size, struct table *table, struct event *event, uint8_t *out,
                      int64_t out_size, int64_t *records, int64_t most_records, struct outcome *outcome)
{
    struct cell rows[2][MOST_COLUMNS];
    struct cell *before = event->op == 'c' ? NULL : rows[0], *after = event->op == 'd' ? NULL : rows[1];
    place at = data + begin, end = data + size;
    uint8_t *written = out;
    outcome->count = 0;
    outcome->stop = ALL_DONE;
    while (at < end) {
        outcome->stop = NOT_PLAIN;
        place next = at;
        if (before)
            next = read_cells(next, end, table, before);
        if (next && after)
            next = read_cells(next, end, table, after);
        if (!next)
            break;
        if (needed(table, event, next - at) > out + out_size - written || outcome->count == most_records) {
            outcome->stop = outcome->count ? OUT_OF_ROOM : NOT_PLAIN;
            break;
        }
        uint8_t *value = written, *put_at = put_rows(value, table, before, after);
        if (!put_at)
            break;
        put_at = put_part(put_at, table->source);
        put_at = put_number(put_at, (uint64_t)event->row++);
        put_at = put_part(put_at, event->behind_row);
        put_at = put_number(put_at, (uint64_t)++event->total);
        put_at = put_part(put_at, event->between_orders);
        put_at = put_number(put_at, (uint64_t)++table->order);
        put_at = put_part(put_at, event->end);
        uint8_t *key = put_at;
        written = put_key(key, table, after ? after : before);
        note_record(records + NUMBERS * outcome->count++, 0, (uint8_t)event->op, out, value, key, written);
        outcome->stop = ALL_DONE;
        at = next;
    }
    outcome->out_bytes = written - out;
    return at - data;
}

/* --- rows that a query answers ------------------------------------------------------------- */

/* What values of a column are; of moments, `digits` are those of a second's fraction. */
enum text_kind {
    TEXT_INTEGER,
    TEXT_FLOAT,
    TEXT_DOUBLE,
    TEXT_DECIMAL,
    TEXT_BIT,
    TEXT_BITS,
    TEXT_DATE,
    TEXT_TIME,
    TEXT_DATETIME,
    TEXT_TIMESTAMP,
    TEXT_UTF8,
    TEXT_ASCII,
    TEXT_BYTES,
};

static uint8_t *put_number_text(uint8_t *out, place at, place end, int is_single)
{
    char text[40];
    if (end - at >= (int64_t)sizeof text)
        return NULL;
    for (place each = at; each < end; each++)
        if (!is_digit(*each) && *each != '-' && *each != '+' && *each != '.' && *each != 'e')
            return NULL;
    memcpy(text, at, (size_t)(end - at));
    text[end - at] = 0;
    char *until;
    double number = strtod(text, &until);
    if (until == text || *until || (is_single && fabs(number) > FLT_MAX))
        return NULL;
    return is_single ? put_shortest(out, number, 6, 9, 1) : put_shortest(out, number, 15, 17, 0);
}

/* Without zeros before it, but for one. */
static uint8_t *put_decimal_text(uint8_t *out, place at, place end)
{
    *out++ = '"';
    if (at < end && *at == '-')
        *out++ = *at++;
    place point = skip_digits(at, end);
    if (point == at || (point < end && (*point != '.' || point + 1 == end || skip_digits(point + 1, end) < end)))
        return NULL;
    while (at < point && *at == '0')
        at++;
    if (at == point)
        *out++ = '0';
    out = put(out, at, end - at);
    *out++ = '"';
    return out;
}

/* The day of `2024-05-31`, and what follows it. */
static enum day read_day(place *at, place end, int64_t *days)
{
    place text = *at;
    if (end - text < 10 || text[4] != '-' || text[7] != '-')
        return ANOTHER_CALENDAR;
    int century = pair(text), year = pair(text + 2), month = pair(text + 5), day = pair(text + 8);
    if (century < 0 || year < 0 || month < 0 || day < 0)
        return ANOTHER_CALENDAR;
    *at += 10;
    return days_of(century * 100 + year, month, day, days);
}

/* Seconds and microseconds of `12:34:56.789`, with hours of any number of digits; 0 if it is anything else. */
static int read_clock(place at, place end, int64_t *seconds, int64_t *micros)
{
    place colon = skip_digits(at, end);
    if (colon == at || colon - at > 4 || end - colon < 6 || *colon != ':' || colon[3] != ':')
        return 0;
    int64_t hours = 0;
    for (; at < colon; at++)
        hours = hours * 10 + *at - '0';
    int minute = pair(colon + 1), second = pair(colon + 4);
    at = colon + 6;
    if (minute < 0 || second < 0 || (at < end && (*at++ != '.' || at == end || end - at > 6)))
        return 0;
    *seconds = (hours * 60 + minute) * 60 + second;
    *micros = 0;
    for (int64_t of_digit = 100000; of_digit; of_digit /= 10) {
        if (at == end)
            continue;
        if (!is_digit(*at))
            return 0;
        *micros += (*at++ - '0') * of_digit;
    }
    return 1;
}

static uint8_t *put_time_text(uint8_t *out, place at, place end)
{
    int is_negative = at < end && *at == '-';
    int64_t seconds, micros;
    if (!read_clock(at + is_negative, end, &seconds, &micros))
        return NULL;
    int64_t whole = seconds * 1000000 + micros;
    return put_signed(out, is_negative ? -whole : whole);
}

static uint8_t *put_day_text(uint8_t *out, place at, place end)
{
    int64_t days;
    enum day day = read_day(&at, end, &days);
    if (day == ANOTHER_CALENDAR || at < end)
        return NULL;
    return day == NO_DAY ? PUT(out, "null") : put_signed(out, days);
}

static uint8_t *put_moment_text(uint8_t *out, place at, place end, const struct column *column)
{
    int64_t days, seconds, micros;
    enum day day = read_day(&at, end, &days);
    if (day == ANOTHER_CALENDAR || at == end || *at++ != ' ' || !read_clock(at, end, &seconds, &micros))
        return NULL;
    if (day == NO_DAY)
        return PUT(out, "null");
    seconds += days * DAY_S;
    if (column->kind == TEXT_TIMESTAMP)
        return put_moment(out, seconds, micros, column->digits);
    return put_since_1970(out, seconds, micros, column->digits);
}

static uint8_t *put_text_value(uint8_t *out, const struct cell *cell, const struct column *column)
{
    place at = cell->at, end = at + cell->length;
    switch (column->kind) {
    case TEXT_INTEGER:
        return at == end || (*at == '0' && end - at > 1) ? NULL : put_integer_text(out, at, end);
    case TEXT_FLOAT:
    case TEXT_DOUBLE:
        return put_number_text(out, at, end, column->kind == TEXT_FLOAT);
    case TEXT_DECIMAL:
        return put_decimal_text(out, at, end);
    case TEXT_BIT:
        if (at == end)
            return NULL;
        return end[-1] & 1 ? PUT(out, "true") : PUT(out, "false");
    case TEXT_BITS:
        return cell->length <= 8 ? put_bits(out, cell) : NULL;
    case TEXT_DATE:
        return put_day_text(out, at, end);
    case TEXT_TIME:
        return put_time_text(out, at, end);
    case TEXT_DATETIME:
    case TEXT_TIMESTAMP:
        return put_moment_text(out, at, end, column);
    case TEXT_UTF8:
        return put_text(out, at, end);
    case TEXT_ASCII:
        return put_ascii(out, at, end);
    case TEXT_BYTES:
        return put_bytes(out, at, cell->length, 0);
    }
    return NULL;
}

/* A number of one to nine octets, and what follows it; NULL if it is not whole. */
static place read_length(place at, place end, int64_t *length)
{
    if (at == end)
        return NULL;
    int octets = *at == 0xFC ? 2 : *at == 0xFD ? 3 : 0;
    if (*at > 0xFD || end - at <= octets)
        return NULL;
    *length = octets ? (int64_t)little_endian(at + 1, octets) : *at;
    return at + 1 + octets;
}

/* The cells of a row, of which each is a text behind its length, or null; whether it fits. */
static int read_texts(place at, place end, struct cell *cells, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (at < end && *at == 0xFB) {
            cells[i].length = NO_VALUE;
            at++;
            continue;
        }
        at = read_length(at, end, &cells[i].length);
        if (!at || cells[i].length > end - at)
            return 0;
        cells[i].at = at;
        at += cells[i].length;
    }
    return at == end;
}

/* Encodes rows that a query has answered, of which number n ends at ends[n] and the next begins, from `first` on,
 * as `encode_logged` does; `table->source` is everything behind a row. Returns the number of the first one that is
 * not done. */
int64_t encode_texts(place data, const int64_t *ends, int64_t first, int64_t row_count, const struct table *table,
                     uint8_t *out, int64_t out_size, int64_t *records, int64_t most_records, struct outcome *outcome)
{
    struct cell cells[MOST_COLUMNS];
    static const struct event nothing;
    uint8_t *written = out;
    int64_t row = first;
    outcome->count = 0;
    outcome->stop = ALL_DONE;
    for (; row < row_count; row++) {
        outcome->stop = NOT_PLAIN;
        place at = data + (row ? ends[row - 1] : 0), end = data + ends[row];
        if (needed(table, &nothing, end - at) > out + out_size - written || outcome->count == most_records) {
            outcome->stop = outcome->count ? OUT_OF_ROOM : NOT_PLAIN;
            break;
        }
        if (!read_texts(at, end, cells, table->column_count))
            break;
        uint8_t *value = written;
        uint8_t *put_at = put_row(PUT(value, "{\"before\":null,\"after\":"), table, cells, put_text_value);
        if (!put_at)
            break;
        uint8_t *key = put_part(put_at, table->source);
        written = put_key(key, table, cells);
        note_record(records + NUMBERS * outcome->count++, 0, 'r', out, value, key, written);
        outcome->stop = ALL_DONE;
    }
    outcome->out_bytes = written - out;
    return row;
}
