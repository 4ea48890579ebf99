/* fake_dnn.h: what the files of the fake cuDNN share. dnn.c stands before the real library and records what is set;
 * dnn_graph.c makes a plain description of a finished graph; dnn_run.c computes it on the CPU. */
#ifndef FAKECUDA_FAKE_DNN_H
#define FAKECUDA_FAKE_DNN_H

#include <cudnn.h>

#include "link.h"
#include "numbers.h"

enum { FK_DNN_AXES = 5, FK_DNN_OPS = 4, FK_DNN_TENSORS = 8 };

/* ---- a finished graph -------------------------------------------------------------------------------------------- */

typedef struct fk_tensor {
    int64_t id, align, dim[FK_DNN_AXES], stride[FK_DNN_AXES];
    int rank;
    fk_type type;
    bool is_virtual;
} fk_tensor;

typedef enum fk_what { FK_FORWARD, FK_DATA, FK_FILTER, FK_ADD, FK_RELU, FK_UNKNOWN } fk_what;

typedef struct fk_step {
    fk_what what;
    fk_tensor x, w, y; /* of ADD: x, the bias, y */
    double alpha, beta;
    int nd;
    int64_t pre[3], post[3], stride[3], dilation[3];
} fk_step;

typedef struct fk_graph {
    struct fk_graph *next; /* of all that there were: they stay */
    fk_step step[FK_DNN_OPS];
    int n;
    bool known; /* the executor can do it */
} fk_graph;

/* ---- what was set, by descriptor --------------------------------------------------------------------------------- */

typedef struct fk_attribute {
    int name, type;
    int64_t n;
    unsigned char *bytes;
} fk_attribute;
typedef struct fk_record {
    struct fk_record *next;
    void *descriptor;
    int type;
    fk_attribute *attribute;
    int n;
    bool finished;
    fk_graph *graph;  /* of a graph, and what is derived from it: never freed, plans outlive what they came from */
    fk_tensor tensor; /* of a finished tensor */
    fk_step part;     /* of a finished convolution, pointwise, operation */
    int64_t workspace;
    bool tf32; /* of a plan: its engine rounds f32 */
} fk_record;

fk_record *fk_record_of(void *descriptor); /* NULL: none */
/* The values of an attribute that was set, or NULL; *n of them. */
const void *fk_value_of(const fk_record *r, int name, int64_t *n);

/* Notes what a descriptor says that was just finished; reports what cuDNN does not notice. */
void fk_graph_note(fk_record *r);

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct fk_dnn_job {
    const fk_graph *graph;
    bool tf32;
    int n;
    int64_t id[FK_DNN_TENSORS];
    uint64_t at[FK_DNN_TENSORS], workspace;
    int64_t workspace_bytes;
} fk_dnn_job;
/* false, and a report: pointers are missing or not as the tensors say. */
bool fk_dnn_check(const fk_dnn_job *job);
void fk_dnn_run(void *data);

#endif
