/* config.h: what the parts of the configuration share: the table of keys, and values with their origin.
 * Inside io; see include/swoop/config.h for what it does. */
#ifndef SW_IO_CONFIG_H
#define SW_IO_CONFIG_H

#include "base/base.h"
#include "swoop/config.h"

typedef struct sw__key_row {
    sw_key_info info;
    const char *later;          /* CHOICE, and words for others: what a later version takes, "tf32|bf16" */
    bool least_open, most_open; /* the bound itself is out */
    const char *alone;          /* the value of the flag without one: "true" for every BOOL; NULL: a value is needed */
    bool how;                   /* says how to start, not what to run: not part of the printed YAML */
} sw__key_row;

extern const sw__key_row sw__keys[SW_KEY_COUNT];

/* Keys that are known, yet not in this version. */
bool sw__config_key_is_later(const char *name);
/* Compares as keys do: - and _ are the same. */
bool sw__key_equal(const char *a, const char *b);

typedef struct sw__config_value {
    char *text;
    sw_origin origin;
    bool is_auto;
    bool chosen; /* by sw_config_choose */
    size_t line; /* in the file, when it came from one */
    union {
        bool b;
        int64_t i;
        double x[2];
    } v;
} sw__config_value;

struct sw_config {
    sw__config_value values[SW_KEY_COUNT];
    sw__text printed;
};

/* Parses text for key k into *v (text excluded). Fails with what is expected; the caller adds the place. */
sw_status sw__config_parse_value(sw_key k, const char *text, sw__config_value *v);
/* Parses, and stores unless a later origin has given the key already. */
sw_status sw__config_store(sw_config *c, sw_key k, const char *text, sw_origin origin, size_t line);
/* "unknown key 'modle'; did you mean 'model'?", or that it is not in this version. extra as in sw_config_argument. */
sw_status sw__config_unknown(const char *name, const char *const *extra);

#endif
