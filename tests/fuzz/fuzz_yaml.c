/* fuzz_yaml.c: any bytes as a run file; one that is taken must print, and read back, the same.
 * libFuzzer target over src/io/config*.c; seeds in corpus/yaml. */
#include "base/base.h"
#include "swoop/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_round_trip(sw_config *c)
{
    const char *text;
    sw_config *again;
    if (sw_config_json(c, &text) != SW_OK || sw_config_yaml(c, &text) != SW_OK) __builtin_trap();
    if (sw_config_new(&again) != SW_OK) return;
    if (sw_config_parse(again, "again", text, strlen(text)) != SW_OK) __builtin_trap();
    for (int k = 0; k < SW_KEY_COUNT; k++) {
        if (k == SW_KEY_RESUME || k == SW_KEY_DRY_RUN) continue; /* not part of what is printed */
        const char *const a = sw_config_text(c, (sw_key)k), *const b = sw_config_text(again, (sw_key)k);
        if (sw_config_about((sw_key)k)->type == SW_KEY_PAIR) continue; /* spaces after the comma go */
        if (strcmp(a, b) != 0) __builtin_trap();
    }
    sw_config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    sw_config *c;
    if (sw_config_new(&c) != SW_OK) return 0;
    if (sw_config_parse(c, "fuzz", bytes, n) == SW_OK) check_round_trip(c);
    sw_config_free(c);
    return 0;
}
