/* swoop/data.h: data sets and the loader that feeds batches of them to training.
 * Needs status.h and io.h. The trainer (train.h) takes a sw_dataset; with a loader you can write your own loop.
 *
 * A data set is a numbered list of samples (x, y). x is what the network reads, y what it should answer:
 *   x   one tensor per sample, without the batch axis: [C, H, W] for images, [features] for vectors. Delivered as f32,
 *       scaled (8-bit values are divided by 255) and normalised: (x − mean[c]) / std[c], c counting along the first
 *       axis. With option `tokens`, delivered as i64 codes, untouched.
 *   y   a class number (i64, 0 … classes−1), a value or tensor (f32), or nothing.
 * Order and content are deterministic. Handles are light: splits and subsets share their storage, and each is closed on
 * its own, in any order. sw_dataset_get may be called from several threads at once; all else from one at a time. */
#ifndef SWOOP_DATA_H
#define SWOOP_DATA_H

#include "swoop/io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_dataset sw_dataset;

typedef enum sw_target {
    SW_TARGET_AUTO = 0, /* integers with one value per sample, with one for each token, or for each place of an image
                           (x [C, H, W], y [H, W] or [1, H, W]: masks): class; else value or tensor */
    SW_TARGET_CLASS,    /* class numbers; y is i64, shape []; or one for each position of a sequence or image: [T], [H, W] */
    SW_TARGET_VALUE,    /* regression: y is f32, shape [] or [k] or more; per-sample integer tensors are i64 */
    SW_TARGET_NONE,     /* x alone (prediction); y is not read, even if there is one */
    SW_TARGET_SEQUENCE  /* CTC: y is i64 [S], the classes of what is to be read in x, from 1 (0 is the blank), then -1s. Never
                           chosen by AUTO. In files [N, S] of integers, that end in -1s or whose lengths [N] are in an
                           archive's y_lengths (beside y), y_train_lengths (beside y_train) … */
} sw_target;

/* What a data set holds. Valid while the data set is open. */
typedef struct sw_dataset_info {
    const char *name;   /* "fashion-mnist", or the path as it was given */
    const char *format; /* "IDX", "NPY", "NPZ", "safetensors", "memory", "callback" */
    int64_t count;      /* samples, at least 1 */
    sw_dtype x_dtype;   /* as delivered: SW_F32, or SW_I64 with tokens */
    sw_dtype x_storage; /* as stored: what memory it takes */
    int x_rank;         /* without the batch axis */
    int64_t x_shape[SW_MAX_RANK];
    sw_target target; /* never AUTO */
    sw_dtype y_dtype; /* as delivered: SW_I64 or SW_F32 */
    int y_rank;       /* 0 for single classes and values */
    int64_t y_shape[SW_MAX_RANK];
    int64_t classes; /* CLASS; SEQUENCE: with the blank; else 0 */
    int64_t longest; /* SEQUENCE: the steps that the longest y needs: its classes, and a blank between two equal ones; 0: not
                        known */
    int64_t vocabulary; /* tokens: the largest of x + 1; 0: not known */
} sw_dataset_info;

/* Per-channel statistics, in units of the delivered x before normalising (for 8-bit images 0 … 1). A channel without
 * spread has std 1. */
typedef struct sw_normalization {
    int64_t channels; /* the size of x's first axis, or 1: one pair for all (8-bit vectors: flattened images) */
    float *mean, *std;
} sw_normalization;
SW_API void sw_normalization_free(sw_normalization *n); /* frees mean and std, zeroes *n; NULL is allowed */

typedef struct sw_dataset_options {
    const char *split;  /* "train" (default) or "test"; two files X:Y have the training split only */
    const char *format; /* "auto" (default, from the content), "idx", "npy", "npz", "safetensors", "text", "bytes", "lines"; or "batches": files
                           whose first two axes are step and sample, merged into one */
    sw_target target;
    int64_t num_classes; /* 0: the largest label + 1. Given: labels beyond it are an error */
    int shape_rank;      /* > 0: the samples' shape, where the file has another of the same size (784 → 1×28×28) */
    int64_t shape[SW_MAX_RANK];
    bool tokens;     /* x holds integer codes (for an embedding): deliver i64, do not scale or normalise. Also without
                        asking where x and y are integers of one shape, of 32 or 64 bits: sequences and what comes next */
    bool integers_are_tokens;      /* x of integers [N, T], of any width, are tokens, whatever y is: for a model that reads such */
    int64_t sequence;              /* text, lines: tokens in a sample; 0: 128 */
    const char *const *vocabulary; /* text: the characters of a model, class by class; lines: its labels; NULL: those that occur */
    int64_t n_vocabulary;
    bool background; /* IDX: return once headers and labels are checked, and read x in a thread of its own. What
                        needs x waits for it; sw_dataset_ready says whether it was good */
} sw_dataset_options;

/* Opens a data set. name_or_path is
 *   "fashion-mnist"       the files of Debian's dataset-fashion-mnist, in /usr/share/datasets
 *   "digits"              the 1,797 8×8 handwritten digits that ship with swoop; both also in $SWOOP_DATA/NAME
 *   a folder              IDX files (train-images*, train-labels*, t10k-images*, t10k-labels*) or x_train.npy, … or
 *                         x.npy and y.npy
 *   "X:Y"                 two files, IDX or NPY each (.gz too); X alone with SW_TARGET_NONE
 *   a .npz, .safetensors  with x and y, or x_train, y_train, x_test, y_test
 *   a .txt (also .gz)     text in UTF-8: x is `sequence` characters, as numbers, y the same moved by one; samples follow one
 *                         another. Classes are the characters that occur, in order of their code points, and have their
 *                         names. With format "bytes" any file, byte by byte, of 256 classes
 *   a .tsv (also .gz)     lines LABEL, tab, TEXT ("lines"): x is the text's first `sequence` bytes, filled up with 0; the
 *                         classes are the labels, in the order of their names. To predict a line may be a text alone
 * A 3-axis x (samples, H, W) is taken for grey images: [1, H, W]. 8-bit images whose channels come last (H, W, 1|3|4)
 * are turned to [C, H, W]. Errors: SW_ERR_DATA names the file and the sample for labels out of range, numbers of
 * samples that differ, an empty set, x that is not finite; and see io.h. options may be NULL. */
SW_API sw_status sw_dataset_open(const char *name_or_path, const sw_dataset_options *options, sw_dataset **out);
/* Whether name_or_path has that split ("test"), as far as names of files and entries tell; nothing is read. */
SW_API bool sw_dataset_has_split(const char *name_or_path, const sw_dataset_options *options, const char *split);
/* Closes this handle; storage goes with its last one. Waits for a background read (and tells it to give up). */
SW_API void sw_dataset_close(sw_dataset *d);
/* Waits for a background read and returns its status. SW_OK at once for a set that was read at opening. */
SW_API sw_status sw_dataset_ready(sw_dataset *d);

/* A data set over the caller's arrays, which must outlive it. x.shape[0] is the number of samples. y may be NULL.
 * x: u8, f32, f64, f16, bf16, i32, i64, u32, bool; y: i32, i64, u8, u32, bool (class numbers, or tensors) or floats.
 * Of options, target, num_classes and tokens apply. The shape is taken as it is. */
SW_API sw_status sw_dataset_from_memory(const sw_array *x, const sw_array *y, const sw_dataset_options *options,
                                        sw_dataset **out);

/* A data set over your own function. get writes sample `index` (0 … count−1): x as f32 (i64 with tokens) already scaled
 * as you like, y as y_dtype (ignored with SW_TARGET_NONE). It is called from loader threads, several at once. A failure
 * is passed on by sw_loader_next with your message (sw_dataset_error). release is called once with the last handle. */
typedef struct sw_dataset_callback {
    const char *name;
    int64_t count;
    bool tokens;
    int x_rank;
    int64_t x_shape[SW_MAX_RANK];
    sw_target target;    /* CLASS, VALUE or NONE */
    int64_t num_classes; /* with CLASS; each label is checked */
    int y_rank;          /* 0: one answer a sample */
    int64_t y_shape[SW_MAX_RANK];
    sw_status (*get)(void *context, int64_t index, void *x, void *y);
    void (*release)(void *context); /* may be NULL */
    void *context;
} sw_dataset_callback;
SW_API sw_status sw_dataset_from_callback(const sw_dataset_callback *c, sw_dataset **out);
/* For get: stores a message and returns s (not SW_OK): return sw_dataset_error(SW_ERR_IO, "camera 2 is gone"); */
SW_API sw_status sw_dataset_error(sw_status s, const char *message);

SW_API const sw_dataset_info *sw_dataset_about(const sw_dataset *d);
SW_API const char *sw_dataset_class_name(const sw_dataset *d, int64_t c); /* NULL where there is no name */
SW_API sw_status sw_dataset_set_class_names(sw_dataset *d, const char *const *names, int64_t n); /* copied */

/* Samples indices[0 … n−1] to x [n, x_shape…] and y [n, y_shape…] (y may be NULL). Allocates nothing. */
SW_API sw_status sw_dataset_get(const sw_dataset *d, const int64_t *indices, int64_t n, void *x, void *y);
/* Counts labels per class into counts[classes]; only for SW_TARGET_CLASS, and not with a callback. */
SW_API sw_status sw_dataset_class_counts(const sw_dataset *d, int64_t *counts);

/* Some samples as a set of their own, in the order given (indices into d, copied). Keeps normalisation, class names. */
SW_API sw_status sw_dataset_subset(const sw_dataset *d, const int64_t *indices, int64_t n, sw_dataset **out);
/* Cuts d in two: round(fraction × count) samples, drawn by seed, go to *held_out, the others to *rest, both in d's
 * order; of a text the end is held out. Classes are stratified: each gives its share, largest remainders rounded up. 0 < fraction < 1, and both parts
 * get at least one sample. Same d, fraction, seed: same parts everywhere. */
SW_API sw_status sw_dataset_split(const sw_dataset *d, double fraction, uint64_t seed, sw_dataset **rest,
                                  sw_dataset **held_out);

/* Mean and standard deviation per channel over all of d, whatever normalisation it has now. Release with
 * sw_normalization_free. The sums are exact for 8-bit data; for others two passes in double. */
SW_API sw_status sw_dataset_measure(const sw_dataset *d, sw_normalization *out);
/* Sets (copies) or with NULL removes the normalisation. Give the test set the training set's, never its own. */
SW_API sw_status sw_dataset_normalize(sw_dataset *d, const sw_normalization *n);
SW_API const sw_normalization *sw_dataset_normalization(const sw_dataset *d); /* NULL if there is none */

/* ---- loader ------------------------------------------------------------------------------------------------------ */

typedef struct sw_loader sw_loader;

typedef struct sw_loader_options {
    int64_t batch;  /* samples per batch; default 64 */
    bool shuffle;   /* a new order each epoch, drawn from (seed, epoch) */
    bool drop_last; /* leave out an epoch's last batch if it is smaller */
    uint64_t seed;
    int workers;  /* background threads; 0 (default): the caller's thread does the work in sw_loader_next */
    int prefetch; /* batches prepared ahead; default 2 per worker */
} sw_loader_options;

typedef struct sw_batch {
    const void *x, *y;      /* [n, …], 64-byte aligned; y is NULL with SW_TARGET_NONE */
    int64_t n;              /* 0: the epoch is over, and the next call begins the next one */
    int64_t epoch, index;   /* counted from 0; index is the batch within the epoch */
    const int64_t *samples; /* the n indices into the data set */
} sw_batch;

/* Batches come in the same order and with the same bits for any number of workers. All memory is allocated here. The
 * data set must stay open, and its normalisation unchanged. SW_ERR_THREAD if a worker cannot be started,
 * SW_ERR_ARGUMENT if drop_last leaves no batch. */
SW_API sw_status sw_loader_open(const sw_dataset *d, const sw_loader_options *options, sw_loader **out);
/* Stops the workers (each finishes its batch) and frees everything. */
SW_API void sw_loader_close(sw_loader *l);
/* The next batch; valid until the next call. After an error, the same call fails the same way until a seek. */
SW_API sw_status sw_loader_next(sw_loader *l, sw_batch *out);
SW_API int64_t sw_loader_batches(const sw_loader *l); /* per epoch */

/* Where the loader stands: the batch that the next sw_loader_next gives (batch = batches per epoch: the end mark).
 * Saved and sought again, with the same seed and options, training goes on with the very same batches. */
typedef struct sw_loader_position {
    int64_t epoch, batch;
} sw_loader_position;
SW_API sw_loader_position sw_loader_tell(const sw_loader *l);
SW_API sw_status sw_loader_seek(sw_loader *l, sw_loader_position p);

/* Seconds that sw_loader_next has waited for (workers = 0: worked on) batches since opening. */
SW_API double sw_loader_wait_seconds(const sw_loader *l);

#ifdef __cplusplus
}
#endif
#endif
