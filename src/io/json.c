/* json.c: JSON strings and numbers for writers, and the UTF-8 check.
 * Inside io, under safetensors and configuration. */
#include "io/json.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The code point at s, which is valid UTF-8, and its length. */
static unsigned decode(const unsigned char *s, size_t *len)
{
    *len = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    unsigned c = *len == 1 ? s[0] : s[0] & (0xFFu >> (*len + 1));
    for (size_t i = 1; i < *len; i++) c = c << 6 | (s[i] & 0x3Fu);
    return c;
}

/* Besides what JSON must escape: what YAML, whose quoted strings look the same, would reject or fold into a space. */
static bool needs_escape(unsigned c)
{
    return c < 0x20 || c == '"' || c == '\\' || (c >= 0x7F && c <= 0x9F) || c == 0x2028 || c == 0x2029 || c == 0xFEFF ||
           c == 0xFFFE || c == 0xFFFF;
}

void sw__json_string(sw__text *t, const char *s)
{
    size_t len;
    sw__text_put(t, "\"", 1);
    for (; *s != '\0'; s += len) {
        const unsigned c = decode((const unsigned char *)s, &len);
        if (!needs_escape(c)) {
            sw__text_put(t, s, len);
        } else if (c == '"' || c == '\\') {
            sw__text_add(t, "\\%c", (char)c);
        } else {
            sw__text_add(t, "\\u%04x", c);
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

/* Length of the valid character at s, or 0. Overlong forms, surrogates and values above U+10FFFF are not valid. */
static size_t character(const unsigned char *s, size_t n)
{
    const unsigned char c = s[0];
    if (c < 0x80) return 1;
    const size_t len = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
    }
    if (c == 0xE0 && s[1] < 0xA0) return 0;
    if (c == 0xED && s[1] > 0x9F) return 0;
    if (c == 0xF0 && s[1] < 0x90) return 0;
    if (c == 0xF4 && s[1] > 0x8F) return 0;
    return len;
}

size_t sw__utf8_check(const char *s, size_t n)
{
    for (size_t at = 0; at < n;) {
        const size_t len = character((const unsigned char *)s + at, n - at);
        if (len == 0) return at;
        at += len;
    }
    return n;
}
