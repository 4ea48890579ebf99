/* json.h: writing JSON text, and UTF-8 checks. Reading is jansson's.
 * Inside io; train writes its state files with it too. */
#ifndef SW_IO_JSON_H
#define SW_IO_JSON_H

#include "base/base.h"

/* Appends s as a JSON string with its quotes. s must be valid UTF-8. */
void sw__json_string(sw__text *t, const char *s);
/* Appends the shortest decimal number that reads back as x, whatever the locale; null for NaN and infinities. */
void sw__json_number(sw__text *t, double x);
/* The place of the first byte that is not UTF-8 (RFC 3629), or n. */
size_t sw__utf8_check(const char *s, size_t n);

#endif
