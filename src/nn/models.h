/* models.h: what the files of named networks share. models.c has the table of names; models_*.c have the networks. */
#ifndef SW_NN_MODELS_H
#define SW_NN_MODELS_H

#include "graph/build.h"
#include "swoop/nn.h"

#define SW__MAX_SIZES 16

/* Numbers after the colon of a model's name: "mlp:256,128", n of them; those behind are as in the table of models.c. */
typedef struct sw__sizes {
    int64_t at[SW__MAX_SIZES];
    int n;
} sw__sizes;

/* x as the model's row in the table says; outputs: classes, or values a sample. */
typedef sw_t (*sw__build_fn)(sw_t x, const sw__sizes *s, int64_t outputs);

/* Does the model of that name give an output for each pixel? outputs are then channels, not values a sample. */
bool sw__model_per_pixel(const char *spec);

/* Does the model of that name read tokens [N, T], where it is given integers? */
bool sw__model_reads_tokens(const char *spec);
/* … and say one class of all of them, where others say what comes after each. */
bool sw__model_classifies(const char *spec);
/* How many tokens it can tell apart, where that is not its outputs; 0: as many as it has outputs. */
int64_t sw__model_vocabulary(const char *spec);
/* Does it give a class for each step, from which CTC reads a sequence? */
bool sw__model_reads_sequences(const char *spec);

/* ---- models_vision.c ---- */
sw_t sw__model_mlp(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_lenet(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_cnn(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_resnet8(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_resnet18(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_unet(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_resnet34(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_resnet50(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_vgg11(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_mobilenet_v2(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_crnn(sw_t x, const sw__sizes *s, int64_t outputs);

/* ---- models_plain.c ---- */
sw_t sw__model_autoencoder(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_tcn(sw_t x, const sw__sizes *s, int64_t outputs);

/* ---- models_recurrent.c ---- */
sw_t sw__model_lstm(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_gru(sw_t x, const sw__sizes *s, int64_t outputs);

/* ---- models_sequence.c ---- */
/* Data sets give series [T, F] as images of one channel: [N, 1, T, F] as a sequence of its rows, [N, T, F]; others as
 * they are. */
sw_t sw__model_rows(sw_t x);
sw_t sw__model_gpt(sw_t x, const sw__sizes *s, int64_t outputs);
sw_t sw__model_transformer(sw_t x, const sw__sizes *s, int64_t outputs);

#endif
