/* json.c: JSON strings and numbers for writers, and the one reader of UTF-8.
 * Inside io, under safetensors, configuration and data's texts. */
#include "io/json.h"
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

size_t sw__utf8_decode(const char *s, size_t n, uint32_t *code)
{
    /* overlong forms, surrogates and values above U+10FFFF are not valid */
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (n == 0) return 0;
    const unsigned char *const u = (const unsigned char *)s;
    const size_t len = u[0] < 0x80 ? 1 : u[0] >> 5 == 6 ? 2 : u[0] >> 4 == 14 ? 3 : u[0] >> 3 == 30 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    uint32_t c = len == 1 ? u[0] : u[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (u[i] >> 6 != 2) return 0;
        c = c << 6 | (u[i] & 0x3Fu);
    }
    if (c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 0;
    *code = c;
    return len;
}

size_t sw__utf8_check(const char *s, size_t n)
{
    uint32_t code;
    for (size_t at = 0; at < n;) {
        const size_t len = sw__utf8_decode(s + at, n - at, &code);
        if (len == 0) return at;
        at += len;
    }
    return n;
}

/* Besides what JSON must escape: what YAML, whose quoted strings look the same, would reject or fold into a space. */
static bool needs_escape(uint32_t c)
{
    return c < 0x20 || c == '"' || c == '\\' || (c >= 0x7F && c <= 0x9F) || c == 0x2028 || c == 0x2029 || c == 0xFEFF ||
           c == 0xFFFE || c == 0xFFFF;
}

void sw__json_string(sw__text *t, const char *s)
{
    sw__text_put(t, "\"", 1);
    for (size_t left = strlen(s), len; left > 0; s += len, left -= len) {
        uint32_t c = 0;
        len = sw__utf8_decode(s, left, &c);
        const bool valid = len > 0;
        len = SW_MAX(len, (size_t)1);
        if (!valid || !needs_escape(c)) {
            sw__text_put(t, s, len);
        } else if (c == '"' || c == '\\') {
            sw__text_add(t, "\\%c", (char)c);
        } else {
            sw__text_add(t, "\\u%04" PRIx32, c);
        }
    }
    sw__text_put(t, "\"", 1);
}

void sw__json_number(sw__text *t, double x)
{
    if (!isfinite(x)) {
        sw__text_put(t, "null", 4);
        return;
    }
    char digits[40];
    for (int precision = 6; precision <= 17; precision += precision < 15 ? 9 : 1) {
        snprintf(digits, sizeof digits, "%.*g", precision, x);
        if (strtod(digits, NULL) == x) break; /* same locale both ways */
    }
    const char *const point = localeconv()->decimal_point;
    char *const here = point[0] != '\0' ? strstr(digits, point) : NULL;
    if (here != NULL) {
        const size_t n = strlen(point);
        *here = '.';
        memmove(here + 1, here + n, strlen(here + n) + 1);
    }
    sw__text_put(t, digits, strlen(digits));
}
