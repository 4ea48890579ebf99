/* run.h: what run.c (training by configuration) and infer.c (evaluating and predicting with a run's model) share:
 * the description of a model that is stored in its file, and the run folder. */
#ifndef SW_TRAIN_RUN_H
#define SW_TRAIN_RUN_H

#include "base/base.h"
#include "swoop/train.h"

#define SW__PATH 1200
#define SW__INFO_KEY "swoop.info"

/* What tokens stand for. */
typedef enum sw__coding { SW__CODING_NUMBERS = 0, SW__CODING_CHARACTERS, SW__CODING_BYTES, SW__CODING_LINES } sw__coding;

/* All that is needed to use a model without its run. */
typedef struct sw__model_about {
    char *model; /* own copy */
    int64_t outputs, classes;
    sw_target target;
    sw_precision precision;
    bool tokens;
    sw__coding coding;
    int x_rank;
    int64_t x_shape[SW_MAX_RANK];
    int y_rank;                     /* of an answer; -1: the file does not say */
    int64_t y_shape[SW_MAX_RANK];
    sw_normalization normalization; /* channels 0: none */
    char **class_names;             /* [classes], entries may be NULL; or NULL */
} sw__model_about;

void sw__about_free(sw__model_about *a);
/* A model as it is named in what people read: a list of layers is called "layers". */
const char *sw__model_text(const char *model);
/* From a data set (with its normalisation) and a model's name; copies all. */
sw_status sw__about_of(const sw_dataset *d, const char *model, int64_t outputs, sw__model_about *out);
/* To and from the JSON text that is stored under SW__INFO_KEY. */
sw_status sw__about_write(const sw__model_about *a, sw__text *out);
sw_status sw__about_read(const char *path, sw__model_about *out);
/* Stored class names and normalisation for a data set that the model is used on; shapes must be the same. */
sw_status sw__about_apply(const sw__model_about *a, sw_dataset *d);

/* The run's data as its configuration says, without normalisation: training and validation part (NULL if none). */
sw_status sw__run_open_data(const sw_config *c, bool background, sw_dataset **train, sw_dataset **val, sw_dataset **test);
/* Does steps of a run again, without writing anything: from its checkpoint before the last, or from the start. event is
 * called as a fit's, with the trainer; what it returns ends the replay. */
typedef struct sw__replay {
    const char *folder;
    bool from_start;
    sw_status (*event)(void *context, sw_trainer *t, const sw_event *e);
    void (*opened)(void *context, const sw_device *d, const sw_config *c); /* before the first step */
    void *context;
} sw__replay;
sw_status sw__run_replay(sw_config *c, const sw__replay *how);

/* "1x28x28" */
void sw__sample_shape(int rank, const int64_t *shape, char *buf, size_t size);
/* Refuses a device that only plans. */
sw_status sw__run_check_computes(const sw_device *d);

#endif
