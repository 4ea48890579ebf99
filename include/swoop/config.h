/* swoop/config.h: the keys of a run, from a YAML file and from the command line, through one table.
 * Needs status.h only. The command `swoop` reads its runs through this, and a program of yours can read the same files.
 *
 * A run file is a flat YAML map: `batch_size: 64`. Every key is also a flag: --batch-size 64, --batch_size=64. What
 * comes later in this list wins: default, file, command line; whatever order they are read in. A value that the user
 * gave is never changed. Errors: in a file SW_ERR_FORMAT, with file and line; on the command line SW_ERR_ARGUMENT. */
#ifndef SWOOP_CONFIG_H
#define SWOOP_CONFIG_H

#include "swoop/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
typedef enum sw_key {
    /* data */
    SW_KEY_DATA, SW_KEY_FORMAT, SW_KEY_SEQUENCE, SW_KEY_VAL, SW_KEY_VAL_SPLIT, SW_KEY_TEST, SW_KEY_NORMALIZE, SW_KEY_SHUFFLE,
    SW_KEY_DROP_LAST, SW_KEY_WORKERS,
    /* model */
    SW_KEY_MODEL, SW_KEY_INIT, SW_KEY_WEIGHTS, SW_KEY_FREEZE, SW_KEY_FREEZE_EPOCHS, SW_KEY_NUM_CLASSES,
    /* optimisation */
    SW_KEY_EPOCHS, SW_KEY_STEPS, SW_KEY_TIME, SW_KEY_BATCH_SIZE, SW_KEY_LOSS, SW_KEY_LABEL_SMOOTHING, SW_KEY_CLASS_WEIGHTS,
    SW_KEY_OPTIMIZER, SW_KEY_LR, SW_KEY_LR_SCALE,
    SW_KEY_WEIGHT_DECAY, SW_KEY_DECAY_ON, SW_KEY_CLIP_GRAD, SW_KEY_CLIP_VALUE, SW_KEY_MOMENTUM, SW_KEY_NESTEROV, SW_KEY_BETAS, SW_KEY_EPS,
    SW_KEY_SCHEDULE, SW_KEY_WARMUP, SW_KEY_MIN_LR, SW_KEY_STEP_SIZE, SW_KEY_GAMMA, SW_KEY_POWER, SW_KEY_GROWTH,
    SW_KEY_MILESTONES, SW_KEY_PLATEAU_PATIENCE, SW_KEY_PLATEAU_THRESHOLD, SW_KEY_PLATEAU_COOLDOWN,
    SW_KEY_EMA, SW_KEY_SWA_START, SW_KEY_SWA_LR,
    /* control */
    SW_KEY_MONITOR, SW_KEY_PATIENCE, SW_KEY_VAL_EVERY, SW_KEY_SAVE_EVERY, SW_KEY_LOG_EVERY, SW_KEY_PRECISION, SW_KEY_STOCHASTIC_ROUNDING,
    SW_KEY_DEVICE, SW_KEY_THREADS, SW_KEY_DETERMINISTIC, SW_KEY_SEED, SW_KEY_ON_NAN, SW_KEY_PROFILE, SW_KEY_KERNELS, SW_KEY_NO_TUNE,
    SW_KEY_MEMORY, SW_KEY_GRAD_ACCUM, SW_KEY_ON_OOM,
    SW_KEY_PREFLIGHT, SW_KEY_SHADOW, SW_KEY_HASHES,
    /* output */
    SW_KEY_PROJECT, SW_KEY_NAME, SW_KEY_EXIST_OK, SW_KEY_RESUME, SW_KEY_DRY_RUN,
    SW_KEY_COUNT
} sw_key;
/* clang-format on */

typedef enum sw_key_type {
    SW_KEY_BOOL,   /* true false yes no on off */
    SW_KEY_INT,    /* decimal, 64 bits */
    SW_KEY_NUMBER, /* decimal, finite */
    SW_KEY_PAIR,   /* two numbers: [0.9, 0.999] in a file, 0.9,0.999 on the command line */
    SW_KEY_CHOICE, /* one of `choices` */
    SW_KEY_STRING
} sw_key_type;

/* What the table says of a key: for --help, and for documentation. */
typedef struct sw_key_info {
    const char *name, *group;
    sw_key_type type;
    const char *fallback; /* the default, as one would write it */
    const char *choices;  /* CHOICE: "adamw|adam|sgd" */
    double least, most;   /* INT, NUMBER, PAIR: inclusive bounds */
    const char *help;
    bool may_be_auto; /* "auto" is allowed: the program chooses, and says what */
    bool may_change;  /* may differ when a run is resumed */
} sw_key_info;
SW_API const sw_key_info *sw_config_about(sw_key k);     /* NULL if k is no key */
SW_API bool sw_config_find(const char *name, sw_key *k); /* - and _ are the same */

typedef struct sw_config sw_config;

SW_API sw_status sw_config_new(sw_config **out); /* every key at its default */
SW_API void sw_config_free(sw_config *c);
SW_API sw_status sw_config_load(sw_config *c, const char *path);
/* The same from memory; name is for messages. */
SW_API sw_status sw_config_parse(sw_config *c, const char *name, const void *yaml, size_t n);

/* Takes argv[*i] if it is the flag of a key, with its value, and moves *i behind; *taken says whether it was one.
 * `--exist-ok` alone means true, `--no-preflight` false for a BOOL key, `--resume` alone "last". An argument that begins with -- and is no key is an error
 * that names the nearest key or one of extra (the caller's own long flags, without dashes; NULL-terminated; may be
 * NULL); so try your own flags first. Anything else (run.yaml, -q) is not taken. */
SW_API sw_status sw_config_argument(sw_config *c, int argc, char *const *argv, int *i, const char *const *extra,
                                    bool *taken);
/* One key as if from the command line. */
SW_API sw_status sw_config_set(sw_config *c, const char *name, const char *value);
/* Puts the program's choice in the place of a default or an `auto`. SW_ERR_ARGUMENT if the user gave a value. */
SW_API sw_status sw_config_choose(sw_config *c, sw_key k, const char *value);

typedef enum sw_origin { SW_FROM_DEFAULT, SW_FROM_FILE, SW_FROM_ARGUMENT } sw_origin;
SW_API sw_origin sw_config_origin(const sw_config *c, sw_key k); /* `auto` in a file is from the file */
SW_API bool sw_config_is_auto(const sw_config *c, sw_key k);     /* nothing was chosen yet */

/* Values. Asking for another type than the key has gives 0, false, NULL; so does asking for an auto value. */
SW_API bool sw_config_bool(const sw_config *c, sw_key k);
SW_API int64_t sw_config_int(const sw_config *c, sw_key k);
SW_API double sw_config_number(const sw_config *c, sw_key k);
SW_API double sw_config_pair(const sw_config *c, sw_key k, int i);
SW_API const char *sw_config_text(const sw_config *c, sw_key k); /* any key, as it was written; "" if unset */

/* All keys in the table's order, as YAML that sw_config_parse reads back to the same, or as a JSON object. resume and
 * dry_run, which say how to start rather than what to run, are left out of the YAML. Valid until the next such call. */
SW_API sw_status sw_config_yaml(sw_config *c, const char **out);
SW_API sw_status sw_config_json(sw_config *c, const char **out);

#ifdef __cplusplus
}
#endif
#endif
