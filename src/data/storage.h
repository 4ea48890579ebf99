/* storage.h: what data set handles share: the arrays or the callback behind them, read at once or in the background.
 * Inside data, beneath dataset.c, get.c and open.c. */
#ifndef SW_DATA_STORAGE_H
#define SW_DATA_STORAGE_H

#include "io/readers.h"
#include "swoop/data.h"
#include <pthread.h>
#include <stdatomic.h>

/* x of a gzipped or plain IDX file of bytes, read in a thread of its own while the program goes on. */
typedef struct sw__background {
    pthread_t thread;
    pthread_mutex_t lock; /* guards `joined` */
    bool joined;
    atomic_bool done;    /* joined: status and message are final */
    atomic_bool give_up; /* set by closing */
    sw__stream stream;
    sw_array x;
    size_t bytes;
    sw_status status;
    char message[1024];
} sw__background;

/* Starts reading x->bytes from the stream into x->data (both owned by the caller and alive until finish). The stream,
 * whose name must stay, is taken over; also on failure. */
sw_status sw__background_start(sw__background *b, sw__stream *s, const sw_array *x);
sw_status sw__background_wait(sw__background *b);
/* Tells it to stop, waits, releases. */
void sw__background_finish(sw__background *b);

typedef struct sw__storage {
    atomic_int handles;
    sw__arena arena; /* names */
    const char *name, *format;
    const char *x_name, *y_name; /* where they came from, for messages */

    sw_array x, y;        /* x.shape[0] samples; y.data NULL: none. y is i64 or f32 */
    sw_array lengths;     /* of sequences in y, as they came: i64 [samples]; data NULL: y says it itself. Own */
    bool own_x, own_y;    /* freed with the storage */
    sw_safetensors *file; /* that x and y point into, or NULL */
    bool channels_last;   /* x is [N, H, W, C], and delivered as [C, H, W] */
    bool tokens;
    bool in_order;              /* samples follow one another in time: a part is held out at the end */
    sw__background *background; /* NULL: x is there */

    bool has_callback;
    sw_dataset_callback callback;
} sw__storage;

/* A storage with one handle. Names are copied. */
sw_status sw__storage_new(const char *name, const char *format, sw__storage **out);
void sw__storage_release(sw__storage *s);
/* Waits for the background read. Cheap when there is none. */
sw_status sw__storage_ready(const sw__storage *s);

/* A handle. */
struct sw_dataset {
    sw__storage *storage;
    sw_dataset_info info;
    int64_t *indices; /* sample → row of the storage; NULL: the same */
    int64_t elements; /* of one x */
    int64_t channels; /* that measuring gives statistics for */
    bool has_normalization;
    sw_normalization normalization;
    float *table;       /* 8-bit x with few channels: [channels, 256] delivered values, for speed; or NULL */
    char **class_names; /* classes of them, or NULL */
};

/* Makes the handle for a storage whose x, y (of any type and shape) are set: gives them their shapes and types, checks
 * labels and values. Takes over the storage's handle; on failure it is released. */
sw_status sw__dataset_over(sw__storage *s, const sw_dataset_options *o, sw_dataset **out);
/* Is this to be read as text (by the format that is asked for, or the name)? And the data set of it (text.c). */
bool sw__is_text(const char *path, const char *format);
sw_status sw__text_open(const char *path, const sw_dataset_options *o, sw_dataset **out);
/* The same for lines LABEL, tab, TEXT (lines.c). */
bool sw__is_lines(const char *path, const char *format);
sw_status sw__lines_open(const char *path, const sw_dataset_options *o, sw_dataset **out);
sw_status sw__text_read(const char *path, uint8_t **bytes, int64_t *n); /* a whole file, to be freed by the caller also on failure */
/* What sw__dataset_over does to x and y (arrange.c). */
sw_status sw__arrange_x(sw__storage *s, const sw_dataset_options *o, sw_dataset_info *info);
sw_status sw__arrange_y(sw__storage *s, const sw_dataset_options *o, sw_dataset_info *info);
/* Values of x that are not finite: names the sample. */
sw_status sw__check_finite(const sw__storage *s);
/* Fills table after a change of normalisation (get.c). */
sw_status sw__dataset_tabulate(sw_dataset *d);

static inline int64_t sw__dataset_row(const sw_dataset *d, int64_t sample)
{
    return d->indices != NULL ? d->indices[sample] : sample;
}

#endif
