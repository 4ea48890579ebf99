/* infer.h: a model file made ready for use, which evaluating and predicting (infer.c) and writing on (generate.c) share. */
#ifndef SW_TRAIN_INFER_H
#define SW_TRAIN_INFER_H

#include "train/run.h"
#include "train/trainer.h"

typedef struct sw__infer {
    char file[SW__PATH], config[SW__PATH]; /* the model file; the run's config.yaml or "" */
    const char *split;                     /* that was opened */
    sw__model_about about;
    sw_dataset *data;
    sw_device *device;
    sw_trainer *trainer;
} sw__infer;

/* The model file of a path (a run folder stands for its best), and what it says of itself. */
sw_status sw__infer_find(sw__infer *s, const char *path);
/* The device, and a trainer that has no weights yet: prepare it on s->data, then load s->file. */
sw_status sw__infer_start(sw__infer *s, const char *device, int threads);
void sw__infer_close(sw__infer *s);

#endif
