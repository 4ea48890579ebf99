/* json.h: writing JSON text, and UTF-8. Reading JSON is jansson's.
 * Inside io; train writes its state files with it too, data reads texts with it. */
#ifndef SW_IO_JSON_H
#define SW_IO_JSON_H

#include "base/base.h"

/* Appends s as a JSON string with its quotes. Bytes that are not UTF-8 go through as they are. */
void sw__json_string(sw__text *t, const char *s);
/* Appends the shortest decimal number that reads back as x, whatever the locale; null for NaN and infinities. */
void sw__json_number(sw__text *t, double x);
/* The character at s, of n bytes: its length, or 0 if it is none (RFC 3629) or n is 0. */
size_t sw__utf8_decode(const char *s, size_t n, uint32_t *code);
/* The place of the first byte that is not UTF-8 (RFC 3629), or n. */
size_t sw__utf8_check(const char *s, size_t n);

#endif
