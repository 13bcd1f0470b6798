/* Rows of PostgreSQL as JSON, many at a time; `rows.py` says what they become.
 *
 * What is not plain is left to Python, message by message: `encode_changes` stops before it. So
 * nothing here has to be complete, and a doubt is a reason to stop. As in `kernels.c`, nothing
 * allocates or is kept between calls, and no length in the data is believed.
 */

#include "records.h"

enum { MOST_COLUMNS = 1600 }; /* PostgreSQL's own limit */

enum kind {
    TEXT,
    INTEGER,
    BOOLEAN,
    FLOAT,
    DECIMAL,
    DECIMAL_AS_DOUBLE,
    DATE,
    TIME_MS,
    TIME_US,
    TIMETZ,
    TIMESTAMP_MS,
    TIMESTAMP_US,
    TIMESTAMPTZ,
    INTERVAL,
    BYTES,
    BITS,
    BIT,
    MONEY,
};

/* What stands between the numbers of a change, from the first (its place in the log) on. */
struct frame {
    struct text between_places, before_op, behind_op, between_orders, end;
    int64_t total; /* the order of the last change in the transaction */
};

/* --- one value --------------------------------------------------------------------------- */

static int is_text(place at, place end, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(end - at) == length && !memcmp(at, text, length);
}

static uint8_t *put_float(uint8_t *out, place at, place end)
{
    if (is_text(at, end, "NaN") || is_text(at, end, "Infinity") || is_text(at, end, "-Infinity"))
        return put_text(out, at, end);
    place digits = at + (*at == '-'), next = skip_digits(digits, end);
    if (next == digits)
        return NULL;
    if (next < end && *next == '.') {
        digits = next + 1;
        next = skip_digits(digits, end);
        if (next == digits)
            return NULL;
    }
    if (next < end && *next == 'e') {
        digits = next + 1;
        if (digits < end && (*digits == '-' || *digits == '+'))
            digits++;
        next = skip_digits(digits, end);
        if (next == digits)
            return NULL;
    }
    return next == end ? put(out, at, end - at) : NULL;
}

/* `00:00:00` and perhaps six digits of a second, in microseconds; -1 if it is anything else. */
static int64_t clock_us(place at, place end)
{
    if (end - at < 8 || at[2] != ':' || at[5] != ':')
        return -1;
    int hours = pair(at), minutes = pair(at + 3), seconds = pair(at + 6);
    if (hours < 0 || minutes < 0 || seconds < 0)
        return -1;
    int64_t us = ((hours * 60 + minutes) * 60 + seconds) * (int64_t)1000000, of_digit = 100000;
    at += 8;
    if (at == end)
        return us;
    if (*at++ != '.' || at == end || end - at > 6)
        return -1;
    for (; at < end; at++, of_digit /= 10) {
        if (!is_digit(*at))
            return -1;
        us += (*at - '0') * of_digit;
    }
    return us;
}

/* Days since 1970 of the `2024-05-31` at `at`, and what follows it; NULL if it is anything else. */
static place date_days(place at, place end, int64_t *days)
{
    place dash = skip_digits(at, end);
    if (dash - at < 4 || dash - at > 6 || end - dash < 6 || dash[0] != '-' || dash[3] != '-')
        return NULL;
    int64_t year = 0;
    for (; at < dash; at++)
        year = year * 10 + *at - '0';
    int month = pair(dash + 1), day = pair(dash + 4);
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > 31)
        return NULL;
    *days = civil_days(year, month, day);
    return dash + 6;
}

static int64_t thousandth(int64_t number)
{
    return number / 1000 - (number % 1000 < 0);
}

static uint8_t *put_timestamp(uint8_t *out, place at, place end, int in_ms)
{
    if (is_text(at, end, "infinity") || is_text(at, end, "-infinity"))
        return put_text(out, at, end);
    int64_t days;
    at = date_days(at, end, &days);
    if (!at || at == end || *at != ' ')
        return NULL;
    int64_t of_day = clock_us(at + 1, end);
    if (of_day < 0)
        return NULL;
    int64_t us = days * 86400000000 + of_day;
    return put_signed(out, in_ms ? thousandth(us) : us);
}

static uint8_t *put_timestamptz(uint8_t *out, place at, place end)
{
    if (is_text(at, end, "infinity") || is_text(at, end, "-infinity"))
        return put_text(out, at, end);
    int64_t days, length = end - at;
    if (length < 22 || memcmp(end - 3, "+00", 3) || at[10] != ' ' || !date_days(at, end, &days) || at[4] != '-' ||
        clock_us(at + 11, end - 3) < 0)
        return NULL;
    *out++ = '"';
    out = put(out, at, 10);
    *out++ = 'T';
    out = put(out, at + 11, 8);
    *out++ = '.';
    int64_t fraction = length > 22 ? length - 23 : 0;
    out = put(out, at + 20, fraction);
    for (; fraction < 6; fraction++)
        *out++ = '0';
    return PUT(out, "Z\"");
}

static int nibble(uint8_t octet)
{
    if (is_digit(octet))
        return octet - '0';
    octet |= 32;
    return octet >= 'a' && octet <= 'f' ? octet - 'a' + 10 : -1;
}

/* `\x68692a` in base64. */
static uint8_t *put_bytes(uint8_t *out, place at, place end)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (end - at < 2 || at[0] != '\\' || at[1] != 'x' || (end - at) % 2)
        return NULL;
    *out++ = '"';
    for (at += 2; at < end;) {
        uint32_t bits = 0;
        int count = 0;
        for (; count < 3 && at < end; count++, at += 2) {
            int high = nibble(at[0]), low = nibble(at[1]);
            if (high < 0 || low < 0)
                return NULL;
            bits |= (uint32_t)(high << 4 | low) << (16 - 8 * count);
        }
        for (int i = 0; i < 4; i++)
            *out++ = i <= count ? (uint8_t)digits[bits >> (18 - 6 * i) & 63] : '=';
    }
    *out++ = '"';
    return out;
}

static uint8_t *put_money(uint8_t *out, place at, place end)
{
    *out++ = '"';
    for (; at < end; at++) {
        if (is_digit(*at) || *at == '.' || *at == '-')
            *out++ = *at;
        else if (*at != '$' && *at != ',')
            return NULL;
    }
    *out++ = '"';
    return out;
}

/* The value as JSON, and where it ends; NULL if it is for Python to look at. At most six octets for
 * each of the text, and 64 more. */
static uint8_t *put_value(uint8_t *out, place at, place end, int64_t kind)
{
    int64_t number;
    if (kind == TEXT || kind == DECIMAL)
        return put_text(out, at, end);
    if (at == end)
        return NULL;
    switch (kind) {
    case INTEGER:
        return put_integer_text(out, at, end);
    case FLOAT:
    case DECIMAL_AS_DOUBLE:
        return put_float(out, at, end);
    case BOOLEAN:
    case BIT:
        if (is_text(at, end, kind == BIT ? "1" : "t"))
            return PUT(out, "true");
        return is_text(at, end, kind == BIT ? "0" : "f") ? PUT(out, "false") : NULL;
    case DATE:
        if (is_text(at, end, "infinity") || is_text(at, end, "-infinity"))
            return put_text(out, at, end);
        return date_days(at, end, &number) == end ? put_signed(out, number) : NULL;
    case TIME_MS:
    case TIME_US:
        number = clock_us(at, end);
        return number < 0 ? NULL : put_signed(out, kind == TIME_MS ? number / 1000 : number);
    case TIMESTAMP_MS:
    case TIMESTAMP_US:
        return put_timestamp(out, at, end, kind == TIMESTAMP_MS);
    case TIMESTAMPTZ:
        return put_timestamptz(out, at, end);
    case BYTES:
        return put_bytes(out, at, end);
    case MONEY:
        return put_money(out, at, end);
    }
    return NULL;
}

/* --- rows -------------------------------------------------------------------------------- */

/* The cells of a row of the stream, and what follows it; NULL if it does not fit. */
static place read_cells(place at, place end, struct cell *cells, int64_t count)
{
    if (end - at < 2 || (int64_t)big_endian(at, 2) != count)
        return NULL;
    at += 2;
    for (int64_t i = 0; i < count; i++) {
        if (at == end)
            return NULL;
        uint8_t letter = *at++;
        if (letter == 't') {
            if (end - at < 4)
                return NULL;
            int64_t length = (int64_t)big_endian(at, 4);
            at += 4;
            if (length > end - at)
                return NULL;
            cells[i].at = at;
            cells[i].length = length;
            at += length;
        } else if (letter == 'n') {
            cells[i].length = NO_VALUE;
        } else if (letter == 'u') {
            cells[i].length = UNCHANGED;
        } else {
            return NULL;
        }
    }
    return at;
}

/* The same of a row that a query answers. */
static int read_answer(place at, place end, struct cell *cells, int64_t count)
{
    if (end - at < 2 || (int64_t)big_endian(at, 2) != count)
        return 0;
    at += 2;
    for (int64_t i = 0; i < count; i++) {
        if (end - at < 4)
            return 0;
        int64_t length = (int32_t)big_endian(at, 4);
        at += 4;
        if (length < NO_VALUE || length > end - at)
            return 0;
        cells[i].at = at;
        cells[i].length = length;
        at += length > 0 ? length : 0;
    }
    return at == end;
}

/* The row as an object; what was not sent again is taken from `old`, if that is given. */
static uint8_t *put_row(uint8_t *out, const struct table *table, struct cell *cells, const struct cell *old)
{
    *out++ = '{';
    for (int64_t i = 0; i < table->column_count; i++) {
        const struct column *column = table->columns + i;
        const struct cell *from = cells[i].length == UNCHANGED && old ? old + i : cells + i;
        if (i)
            *out++ = ',';
        out = put(out, column->name.at, column->name.length);
        cells[i].json = out;
        if (from->length == NO_VALUE)
            out = PUT(out, "null");
        else if (from->length == UNCHANGED)
            return NULL;
        else
            out = put_value(out, from->at, from->at + from->length, column->kind);
        if (!out)
            return NULL;
        cells[i].json_length = out - cells[i].json;
    }
    *out++ = '}';
    return out;
}

/* --- the stream -------------------------------------------------------------------------- */

enum {
    FRAME_HEAD = 5, /* a letter and a length */
    WAL_HEAD = 25,  /* a letter, where it lies, where the log ends, when it was sent */
    MESSAGE_AT = FRAME_HEAD + WAL_HEAD,
    ROW_AT = MESSAGE_AT + 5, /* behind a letter and a table */
};

/* The end of the message at `at`; NULL if it is not whole, or has no row. */
static place row_message_end(place at, place end)
{
    if (end - at < ROW_AT || at[0] != 'd')
        return NULL;
    int64_t size = (int32_t)big_endian(at + 1, 4) + (int64_t)1;
    if (size < ROW_AT || size > end - at || at[FRAME_HEAD] != 'w')
        return NULL;
    uint8_t letter = at[MESSAGE_AT];
    return letter == 'I' || letter == 'U' || letter == 'D' ? at + size : NULL;
}

/* The number of the table with this oid, of those sorted by it; -1 if it is none of them. */
static int64_t find_table(const struct table *tables, int64_t count, int64_t oid)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (tables[middle].oid < oid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && tables[low].oid == oid ? low : -1;
}

/* Where the messages end, from data[begin] on, that are rows of these tables; adds to `counts`, one for
 * each table, how many. The outcome has how many there are and the last one's place in the log. */
int64_t find_changes(place data, int64_t begin, int64_t size, const struct table *tables, int64_t table_count,
                     int64_t *counts, struct outcome *outcome)
{
    place at = data + begin, end = data + size, next;
    outcome->count = 0;
    for (; (next = row_message_end(at, end)); at = next) {
        int64_t number = find_table(tables, table_count, (int64_t)big_endian(at + MESSAGE_AT + 1, 4));
        if (number < 0)
            break;
        counts[number]++;
        outcome->count++;
        outcome->last_place = (int64_t)big_endian(at + FRAME_HEAD + 1, 8);
    }
    return at - data;
}

/* Room that the change of a message surely fits into. */
static int64_t needed(const struct table *table, const struct frame *frame, int64_t size)
{
    return 18 * size + 3 * (table->name_bytes + 72 * table->column_count) + table->source.length +
           frame->between_places.length + frame->before_op.length + frame->behind_op.length +
           frame->between_orders.length + frame->end.length + 256;
}

/* Both rows of a change as members of its envelope; the one that has its key goes to `keyed`. */
static uint8_t *put_rows(uint8_t *out, const struct table *table, place at, place end, uint8_t letter,
                         struct cell rows[2][MOST_COLUMNS], struct cell **keyed, uint8_t *op)
{
    struct cell *old = rows[0], *new = rows[1];
    uint8_t kind = *at++;
    int has_old = kind == 'K' || kind == 'O';
    out = PUT(out, "{\"before\":");
    if (has_old && letter != 'I') {
        at = read_cells(at, end, old, table->column_count);
        out = at ? put_row(out, table, old, NULL) : NULL;
        if (!out)
            return NULL;
    } else {
        out = PUT(out, "null");
    }
    out = PUT(out, ",\"after\":");
    if (letter == 'D') {
        *op = 'd';
        *keyed = old;
        return has_old && at == end ? PUT(out, "null") : NULL;
    }
    if (has_old && (letter == 'I' || at == end || *at++ != 'N'))
        return NULL;
    if (!has_old && kind != 'N')
        return NULL;
    at = read_cells(at, end, new, table->column_count);
    if (at != end)
        return NULL;
    out = put_row(out, table, new, kind == 'O' ? old : NULL);
    if (!out || (has_old && !has_same_key(table, old, new)))
        return NULL;
    *op = letter == 'I' ? 'c' : 'u';
    *keyed = new;
    return out;
}

/* Encodes the changes of data[0, size), which `find_changes` found, as long as they are plain and there is
 * room for them: values and keys into `out`, NUMBERS of them for each into `records`. Returns how many
 * octets of the data are done. */
int64_t encode_changes(place data, int64_t begin, int64_t size, struct table *tables, int64_t table_count,
                       struct frame *frame, uint8_t *out, int64_t out_size, int64_t *records,
                       int64_t most_records, struct outcome *outcome)
{
    struct cell rows[2][MOST_COLUMNS];
    place at = data + begin, end = data + size;
    uint8_t *written = out;
    outcome->count = 0;
    outcome->stop = ALL_DONE;
    while (at < end) {
        place next = row_message_end(at, end);
        int64_t number = next ? find_table(tables, table_count, (int64_t)big_endian(at + MESSAGE_AT + 1, 4)) : -1;
        outcome->stop = NOT_PLAIN;
        if (number < 0 || next - at <= ROW_AT || tables[number].column_count > MOST_COLUMNS)
            break;
        struct table *table = tables + number;
        if (needed(table, frame, next - at) > out + out_size - written || outcome->count == most_records) {
            outcome->stop = outcome->count ? OUT_OF_ROOM : NOT_PLAIN;
            break;
        }
        uint64_t log_place = big_endian(at + FRAME_HEAD + 1, 8);
        uint8_t op = 0;
        struct cell *keyed = NULL;
        uint8_t *value = written;
        uint8_t *put_at = put_rows(value, table, at + ROW_AT, next, at[MESSAGE_AT], rows, &keyed, &op);
        if (!put_at)
            break;
        put_at = put_part(put_at, table->source);
        put_at = put_number(put_at, log_place);
        put_at = put_part(put_at, frame->between_places);
        put_at = put_number(put_at, log_place);
        put_at = put_part(put_at, frame->before_op);
        *put_at++ = op;
        put_at = put_part(put_at, frame->behind_op);
        put_at = put_number(put_at, (uint64_t)++frame->total);
        put_at = put_part(put_at, frame->between_orders);
        put_at = put_number(put_at, (uint64_t)++table->order);
        put_at = put_part(put_at, frame->end);
        uint8_t *key = put_at;
        written = put_key(key, table, keyed);
        note_record(records + NUMBERS * outcome->count++, number, op, out, value, key, written);
        outcome->stop = ALL_DONE;
        at = next;
    }
    outcome->out_bytes = written - out;
    return at - data;
}

/* Where the DataRow messages end that begin at data[begin]; the outcome has how many there are, and where
 * the last one begins. */
int64_t find_answers(place data, int64_t begin, int64_t size, struct outcome *outcome)
{
    place at = data + begin, end = data + size;
    outcome->count = 0;
    while (end - at >= FRAME_HEAD && *at == 'D') {
        int64_t message = (int32_t)big_endian(at + 1, 4) + (int64_t)1;
        if (message < FRAME_HEAD || message > end - at)
            break;
        outcome->count++;
        outcome->last_place = at - data;
        at += message;
    }
    return at - data;
}

/* Encodes the rows of one table that a query has answered, one DataRow message behind the other, in the
 * same way; `table->source` is everything behind a row. */
int64_t encode_answers(place data, int64_t begin, int64_t size, const struct table *table, uint8_t *out,
                       int64_t out_size, int64_t *records, int64_t most_records, struct outcome *outcome)
{
    struct cell cells[MOST_COLUMNS];
    static const struct frame nothing;
    place at = data + begin, end = data + size;
    uint8_t *written = out;
    outcome->count = 0;
    outcome->stop = ALL_DONE;
    while (at < end) {
        outcome->stop = NOT_PLAIN;
        if (end - at < FRAME_HEAD || *at != 'D' || table->column_count > MOST_COLUMNS)
            break;
        int64_t message = (int32_t)big_endian(at + 1, 4) + (int64_t)1;
        if (message < FRAME_HEAD || message > end - at)
            break;
        if (needed(table, &nothing, message) > out + out_size - written || outcome->count == most_records) {
            outcome->stop = outcome->count ? OUT_OF_ROOM : NOT_PLAIN;
            break;
        }
        if (!read_answer(at + FRAME_HEAD, at + message, cells, table->column_count))
            break;
        uint8_t *value = written;
        uint8_t *put_at = put_row(PUT(value, "{\"before\":null,\"after\":"), table, cells, NULL);
        if (!put_at)
            break;
        uint8_t *key = put_part(put_at, table->source);
        written = put_key(key, table, cells);
        note_record(records + NUMBERS * outcome->count++, 0, 'r', out, value, key, written);
        outcome->stop = ALL_DONE;
        at += message;
    }
    outcome->out_bytes = written - out;
    return at - data;
}
