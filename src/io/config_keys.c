/* config_keys.c: the table of keys: name, type, default, bounds, help. A new key is a row here and a name in the enum.
 * Inside io; run files, flags, --help and --print-config all follow this table. */
#include "io/config.h"

#define MOST_CLASSES 16777215 /* what the description in a model file holds (train/about.c) */
#define EXACT 9007199254740992.0 /* 2^53: integers up to here are exact as doubles, in which bounds are kept */

const sw__key_row sw__keys[SW_KEY_COUNT] = {
    [SW_KEY_DATA] = {
        .info = { .name = "data", .group = "data", .type = SW_KEY_STRING, .fallback = "",
                  .help = "data set: a known name (fashion-mnist, digits), a folder, X:Y files, .npz, .safetensors, .txt, .tsv" },
    },
    [SW_KEY_FORMAT] = {
        .info = { .name = "format", .group = "data", .type = SW_KEY_CHOICE, .fallback = "auto",
                  .choices = "auto|idx|npy|npz|safetensors|batches|text|bytes|lines",
                  .help = "how to read the data" },
    },
    [SW_KEY_SEQUENCE] = {
        .info = { .name = "sequence", .group = "data", .type = SW_KEY_INT, .fallback = "128", .least = 1, .most = 1 << 24,
                  .help = "text: characters (or bytes) in a sample; lines of a .tsv: bytes of each" },
    },
    [SW_KEY_VAL] = {
        .info = { .name = "val", .group = "data", .type = SW_KEY_STRING, .fallback = "",
                  .help = "data set for validation, instead of a part of the training data; test: the data's own test "
                          "split" },
    },
    [SW_KEY_VAL_SPLIT] = {
        .info = { .name = "val_split", .group = "data", .type = SW_KEY_NUMBER, .fallback = "0.1", .least = 0,
                  .most = 1,
                  .help = "part of the training data held out for validation, stratified; 0: none" },
        .most_open = true,
    },
    [SW_KEY_TEST] = {
        .info = { .name = "test", .group = "data", .type = SW_KEY_STRING, .fallback = "",
                  .help = "data set for a test of the best epoch at the end; test: the data's own test split" },
    },
    [SW_KEY_NORMALIZE] = {
        .info = { .name = "normalize", .group = "data", .type = SW_KEY_STRING, .fallback = "train",
                  .help = "train: by the training data's mean and std per channel; none; or MEAN:STD, such as "
                          "0.5:0.25" },
    },
    [SW_KEY_SHUFFLE] = {
        .info = { .name = "shuffle", .group = "data", .type = SW_KEY_BOOL, .fallback = "true",
                  .help = "a new order of the training data each epoch" },
        .alone = "true",
    },
    [SW_KEY_DROP_LAST] = {
        .info = { .name = "drop_last", .group = "data", .type = SW_KEY_BOOL, .fallback = "false",
                  .help = "leave out an epoch's last batch if it is smaller" },
        .alone = "true",
    },
    [SW_KEY_WORKERS] = {
        .info = { .name = "workers", .group = "data", .type = SW_KEY_INT, .fallback = "auto", .least = 0, .most = 256,
                  .may_be_auto = true, .may_change = true,
                  .help = "threads that prepare batches; 0: the training thread does it itself" },
    },
    [SW_KEY_MODEL] = {
        .info = { .name = "model", .group = "model", .type = SW_KEY_STRING, .fallback = "",
                  .help = "network: a name with arguments (lenet, mlp:256,128, resnet18); a run file may say "
                          "layers instead, and list them" },
    },
    [SW_KEY_INIT] = {
        .info = { .name = "init", .group = "model", .type = SW_KEY_STRING, .fallback = "default",
                  .help = "initial weights: default (as PyTorch's layers), a scheme's name, or a safetensors file" },
    },
    [SW_KEY_WEIGHTS] = {
        .info = { .name = "weights", .group = "model", .type = SW_KEY_STRING, .fallback = "",
                  .help = "safetensors file or run folder with trained weights to start from" },
    },
    [SW_KEY_FREEZE] = {
        .info = { .name = "freeze", .group = "model", .type = SW_KEY_STRING, .fallback = "",
                  .help = "parameters that are not learnt, by patterns of their names: conv1.*,*.bias" },
    },
    [SW_KEY_FREEZE_EPOCHS] = {
        .info = { .name = "freeze_epochs", .group = "model", .type = SW_KEY_INT, .fallback = "0", .least = 0,
                  .most = EXACT,
                  .help = "epochs after which they are learnt, too; 0: never" },
    },
    [SW_KEY_NUM_CLASSES] = {
        .info = { .name = "num_classes", .group = "model", .type = SW_KEY_INT, .fallback = "auto", .least = 1,
                  .most = MOST_CLASSES, .may_be_auto = true,
                  .help = "classes of the model; auto: from the data" },
    },
    [SW_KEY_EPOCHS] = {
        .info = { .name = "epochs", .group = "optimisation", .type = SW_KEY_INT, .fallback = "20", .least = 1,
                  .most = EXACT, .may_change = true,
                  .help = "passes over the training data" },
    },
    [SW_KEY_STEPS] = {
        .info = { .name = "steps", .group = "optimisation", .type = SW_KEY_INT, .fallback = "0", .least = 0,
                  .most = EXACT, .may_change = true,
                  .help = "stop after this many steps; 0: no such limit" },
    },
    [SW_KEY_TIME] = {
        .info = { .name = "time", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0", .least = 0,
                  .most = 1e9, .may_change = true,
                  .help = "stop after this many hours; 0: no such limit" },
    },
    [SW_KEY_BATCH_SIZE] = {
        .info = { .name = "batch_size", .group = "optimisation", .type = SW_KEY_INT, .fallback = "64", .least = 1,
                  .most = EXACT, .may_change = true,
                  .help = "samples per step" },
        .later = "auto",
    },
    [SW_KEY_LOSS] = {
        .info = { .name = "loss", .group = "optimisation", .type = SW_KEY_CHOICE, .fallback = "auto",
                  .choices = "auto|cross_entropy|mse|l1|smooth_l1|huber|bce_with_logits|ctc",
                  .help = "what is minimised; auto: cross_entropy for classes, mse for values, ctc with crnn" },
    },
    [SW_KEY_LABEL_SMOOTHING] = {
        .info = { .name = "label_smoothing", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0", .least = 0,
                  .most = 1,
                  .help = "share of the target that is spread over all classes, in training" },
        .most_open = true,
    },
    [SW_KEY_CLASS_WEIGHTS] = {
        .info = { .name = "class_weights", .group = "optimisation", .type = SW_KEY_STRING, .fallback = "none",
                  .help = "what an error counts in training, by its class: none, balanced (by how rare it is), or a list: "
                          "1,2.5,1" },
    },
    [SW_KEY_OPTIMIZER] = {
        .info = { .name = "optimizer", .group = "optimisation", .type = SW_KEY_CHOICE, .fallback = "adamw",
                  .choices = "adamw|adam|sgd|nadam|radam|rmsprop|adagrad|adadelta|adamax|lion|lamb",
                  .help = "update rule" },
    },
    [SW_KEY_LR] = {
        .info = { .name = "lr", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "auto", .least = 0,
                  .most = 1e6, .may_be_auto = true,
                  .help = "learning rate, at its highest, above 0; auto: 1e-3, sgd 0.05, rmsprop and adagrad 0.01, "
                          "adadelta 1, nadam and adamax 2e-3, lion 1e-4" },
        .later = "find",
        .least_open = true,
    },
    [SW_KEY_LR_SCALE] = {
        .info = { .name = "lr_scale", .group = "optimisation", .type = SW_KEY_STRING, .fallback = "",
                  .help = "other learning rates by patterns of parameter names, the first that fits: layer1.*=0.1,*.bias=2" },
    },
    [SW_KEY_WEIGHT_DECAY] = {
        .info = { .name = "weight_decay", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0.01",
                  .least = 0, .most = 1e6,
                  .help = "weight decay" },
    },
    [SW_KEY_DECAY_ON] = {
        .info = { .name = "decay_on", .group = "optimisation", .type = SW_KEY_CHOICE, .fallback = "matrices",
                  .choices = "matrices|all",
                  .help = "what weight decay works on: matrices (not biases and norms), or all" },
    },
    [SW_KEY_CLIP_GRAD] = {
        .info = { .name = "clip_grad", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0", .least = 0,
                  .most = 1e9,
                  .help = "largest L2 norm of all gradients together; 0: off" },
    },
    [SW_KEY_CLIP_VALUE] = {
        .info = { .name = "clip_value", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0", .least = 0,
                  .most = 1e9,
                  .help = "largest value of each element of the gradients; 0: off" },
    },
    [SW_KEY_MOMENTUM] = {
        .info = { .name = "momentum", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "auto", .least = 0,
                  .most = 1, .may_be_auto = true,
                  .help = "momentum of sgd and rmsprop; auto: sgd 0.9, rmsprop none" },
        .most_open = true,
    },
    [SW_KEY_NESTEROV] = {
        .info = { .name = "nesterov", .group = "optimisation", .type = SW_KEY_BOOL, .fallback = "false",
                  .help = "Nesterov's form of momentum, for sgd" },
        .alone = "true",
    },
    [SW_KEY_BETAS] = {
        .info = { .name = "betas", .group = "optimisation", .type = SW_KEY_PAIR, .fallback = "auto", .least = 0,
                  .most = 1, .may_be_auto = true,
                  .help = "decay of the two moments of adam and its kin; auto: 0.9,0.999, lion 0.9,0.99" },
        .most_open = true,
    },
    [SW_KEY_EPS] = {
        .info = { .name = "eps", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "auto", .least = 0,
                  .most = 1, .may_be_auto = true,
                  .help = "what adam and its kin add to the root of the second moment; auto: 1e-8, adagrad 1e-10, adadelta "
                          "and lamb 1e-6" },
        .least_open = true,
    },
    [SW_KEY_SCHEDULE] = {
        .info = { .name = "schedule", .group = "optimisation", .type = SW_KEY_CHOICE, .fallback = "cosine",
                  .choices = "cosine|constant|step|multistep|linear|exponential|polynomial|restarts|onecycle|plateau",
                  .help = "how the learning rate goes after the warm-up" },
    },
    [SW_KEY_WARMUP] = {
        .info = { .name = "warmup", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0.05", .least = 0,
                  .most = 1,
                  .help = "part of all steps over which the learning rate rises to lr; not with onecycle, which is its "
                          "own" },
    },
    [SW_KEY_MIN_LR] = {
        .info = { .name = "min_lr", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0", .least = 0,
                  .most = 1e6,
                  .help = "where the cosine, linear and polynomial schedules end, and each period of restarts; plateau "
                          "goes no lower" },
    },
    [SW_KEY_STEP_SIZE] = {
        .info = { .name = "step_size", .group = "optimisation", .type = SW_KEY_INT, .fallback = "10", .least = 1,
                  .most = EXACT,
                  .help = "epochs between two cuts of the step schedule; of the first period of restarts" },
    },
    [SW_KEY_GAMMA] = {
        .info = { .name = "gamma", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "auto", .least = 0,
                  .most = 1, .may_be_auto = true,
                  .help = "factor of a cut of step, multistep and plateau, of an epoch of the exponential one; auto: 0.1, 0.95" },
        .least_open = true,
    },
    [SW_KEY_POWER] = {
        .info = { .name = "power", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "2", .least = 0,
                  .most = 100,
                  .help = "exponent of the polynomial schedule" },
        .least_open = true,
    },
    [SW_KEY_GROWTH] = {
        .info = { .name = "growth", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "2", .least = 1,
                  .most = 1000,
                  .help = "how many times as long each period of the restarts schedule is as the one before" },
    },
    [SW_KEY_MILESTONES] = {
        .info = { .name = "milestones", .group = "optimisation", .type = SW_KEY_STRING, .fallback = "",
                  .help = "epochs after which the multistep schedule cuts the rate: 30,60" },
    },
    [SW_KEY_PLATEAU_PATIENCE] = {
        .info = { .name = "plateau_patience", .group = "optimisation", .type = SW_KEY_INT, .fallback = "10", .least = 0,
                  .most = EXACT,
                  .help = "validations without gain, one after another, that the plateau schedule lets pass" },
    },
    [SW_KEY_PLATEAU_THRESHOLD] = {
        .info = { .name = "plateau_threshold", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "1e-4", .least = 0,
                  .most = 1,
                  .help = "part of the best figure that a gain has to exceed for the plateau schedule" },
    },
    [SW_KEY_PLATEAU_COOLDOWN] = {
        .info = { .name = "plateau_cooldown", .group = "optimisation", .type = SW_KEY_INT, .fallback = "0", .least = 0,
                  .most = EXACT,
                  .help = "validations that do not count after a cut of the plateau schedule" },
    },
    [SW_KEY_EMA] = {
        .info = { .name = "ema", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0", .least = 0,
                  .most = 1,
                  .help = "decay of an exponential average of the weights, which is validated and saved: 0.999; 0: off" },
        .most_open = true,
    },
    [SW_KEY_SWA_START] = {
        .info = { .name = "swa_start", .group = "optimisation", .type = SW_KEY_INT, .fallback = "0", .least = 0,
                  .most = EXACT,
                  .help = "epoch from which on the equal average of the weights at epochs' ends is validated and saved; 0: "
                          "off" },
    },
    [SW_KEY_SWA_LR] = {
        .info = { .name = "swa_lr", .group = "optimisation", .type = SW_KEY_NUMBER, .fallback = "0", .least = 0,
                  .most = 1e6,
                  .help = "learning rate from swa_start on; 0: the schedule's" },
    },
    [SW_KEY_MONITOR] = {
        .info = { .name = "monitor", .group = "control", .type = SW_KEY_CHOICE, .fallback = "val_loss",
                  .choices = "val_loss|val_acc|loss|acc",
                  .help = "what decides which epoch is the best" },
    },
    [SW_KEY_PATIENCE] = {
        .info = { .name = "patience", .group = "control", .type = SW_KEY_INT, .fallback = "0", .least = 0,
                  .most = EXACT, .may_change = true,
                  .help = "stop after this many epochs without a better one; 0: never" },
    },
    [SW_KEY_VAL_EVERY] = {
        .info = { .name = "val_every", .group = "control", .type = SW_KEY_INT, .fallback = "1", .least = 1,
                  .most = EXACT,
                  .help = "epochs between validations" },
    },
    [SW_KEY_SAVE_EVERY] = {
        .info = { .name = "save_every", .group = "control", .type = SW_KEY_INT, .fallback = "0", .least = 0,
                  .most = EXACT,
                  .help = "steps between checkpoints within an epoch; 0: at its end only" },
    },
    [SW_KEY_LOG_EVERY] = {
        .info = { .name = "log_every", .group = "control", .type = SW_KEY_INT, .fallback = "50", .least = 1,
                  .most = EXACT,
                  .help = "steps between log lines" },
    },
    [SW_KEY_PRECISION] = {
        .info = { .name = "precision", .group = "control", .type = SW_KEY_CHOICE, .fallback = "f32",
                  .choices = "f32|tf32|bf16|f16",
                  .help = "arithmetic; bf16, f16: mixed, weights stay f32; tf32: products round their inputs for NVIDIA's "
                          "tensor cores" },
    },
    [SW_KEY_STOCHASTIC_ROUNDING] = {
        .info = { .name = "stochastic_rounding", .group = "control", .type = SW_KEY_BOOL, .fallback = "false",
                  .help = "bf16, f16: weights' half copies are rounded up or down by chance" },
        .alone = "true",
    },
    [SW_KEY_DEVICE] = {
        .info = { .name = "device", .group = "control", .type = SW_KEY_STRING, .fallback = "auto",
                  .may_be_auto = true, .may_change = true,
                  .help = "device: auto, cpu, cuda:0, opencl:0, ref" },
    },
    [SW_KEY_THREADS] = {
        .info = { .name = "threads", .group = "control", .type = SW_KEY_INT, .fallback = "auto", .least = 1,
                  .most = 1024, .may_be_auto = true, .may_change = true,
                  .help = "threads that compute; auto: one per core" },
    },
    [SW_KEY_DETERMINISTIC] = {
        .info = { .name = "deterministic", .group = "control", .type = SW_KEY_BOOL, .fallback = "true",
                  .help = "same seed, device and thread count: same bits" },
        .alone = "true",
    },
    [SW_KEY_SEED] = {
        .info = { .name = "seed", .group = "control", .type = SW_KEY_INT, .fallback = "0", .least = 0, .most = EXACT,
                  .help = "seed of initial weights, order and split" },
    },
    [SW_KEY_ON_NAN] = {
        .info = { .name = "on_nan", .group = "control", .type = SW_KEY_CHOICE, .fallback = "stop",
                  .choices = "stop|continue",
                  .help = "when a loss is NaN or infinite" },
    },
    [SW_KEY_MEMORY] = {
        .info = { .name = "memory", .group = "control", .type = SW_KEY_STRING, .fallback = "", .may_change = true,
                  .help = "device memory that training may take, as 800M or 1.5GiB: values are recomputed, then batches cut "
                          "into micro-batches, until it fits" },
    },
    [SW_KEY_GRAD_ACCUM] = {
        .info = { .name = "grad_accum", .group = "control", .type = SW_KEY_INT, .fallback = "1", .least = 1, .most = 1 << 20,
                  .may_change = true,
                  .help = "micro-batches that each batch is cut into; one update follows all" },
    },
    [SW_KEY_ON_OOM] = {
        .info = { .name = "on_oom", .group = "control", .type = SW_KEY_CHOICE, .fallback = "stop", .choices = "stop|shrink",
                  .may_change = true,
                  .help = "when the device is out of memory: stop, or plan the step anew with less and go on" },
    },
    [SW_KEY_PROFILE] = {
        .info = { .name = "profile", .group = "control", .type = SW_KEY_INT, .fallback = "0", .least = 0,
                  .most = EXACT,
                  .help = "steps to profile, kernel by kernel" },
    },
    [SW_KEY_KERNELS] = {
        .info = { .name = "kernels", .group = "control", .type = SW_KEY_STRING, .fallback = "", .may_change = true,
                  .help = "folder of a GPU's kernels, as `swoop kernels` writes it: nothing is compiled" },
    },
    [SW_KEY_NO_TUNE] = {
        .info = { .name = "no_tune", .group = "control", .type = SW_KEY_BOOL, .fallback = "false", .may_change = true,
                  .help = "do not measure which of a GPU's kernels are the fastest" },
        .alone = "true",
    },
    [SW_KEY_PREFLIGHT] = {
        .info = { .name = "preflight", .group = "control", .type = SW_KEY_BOOL, .fallback = "true", .may_change = true,
                  .help = "look at the first batch, its gradients and dead relus before the first step; --no-preflight: not" },
        .alone = "true",
    },
    [SW_KEY_SHADOW] = {
        .info = { .name = "shadow", .group = "control", .type = SW_KEY_STRING, .fallback = "", .may_change = true,
                  .help = "DEVICE:STEPS: every so many steps each op is computed on that device, too, and compared: ref:100, "
                          "cpu:100" },
    },
    [SW_KEY_HASHES] = {
        .info = { .name = "hashes", .group = "control", .type = SW_KEY_BOOL, .fallback = "true", .may_change = true,
                  .help = "record hashes of the weights in hashes.csv, for swoop verify" },
        .alone = "true",
    },
    [SW_KEY_PROJECT] = {
        .info = { .name = "project", .group = "output", .type = SW_KEY_STRING, .fallback = "runs",
                  .help = "folder of the run folders" },
    },
    [SW_KEY_NAME] = {
        .info = { .name = "name", .group = "output", .type = SW_KEY_STRING, .fallback = "train",
                  .help = "name of the run folder; -2, -3, ... is added if it exists" },
    },
    [SW_KEY_EXIST_OK] = {
        .info = { .name = "exist_ok", .group = "output", .type = SW_KEY_BOOL, .fallback = "false",
                  .help = "write into an existing run folder" },
        .alone = "true",
    },
    [SW_KEY_RESUME] = {
        .info = { .name = "resume", .group = "output", .type = SW_KEY_STRING, .fallback = "",
                  .help = "go on with this run folder; alone: with the last run" },
        .alone = "last", .how = true,
    },
    [SW_KEY_DRY_RUN] = {
        .info = { .name = "dry_run", .group = "output", .type = SW_KEY_BOOL, .fallback = "false",
                  .help = "check everything, plan, and stop before the first step" },
        .how = true, .alone = "true",
    },
};

/* Keys of later versions (they are in the documentation already): named as such rather than as unknown. */
static const char *const later[] = {
    "image_size", "channels",        "target",      "normalize_target", "missing", "categorical",
    "augment",    "cache",           "shape",       "window",           "stride",
    "tensorboard", "report",           "gpus",
};

bool sw__key_equal(const char *a, const char *b)
{
    for (;; a++, b++) {
        const char x = *a == '-' ? '_' : *a, y = *b == '-' ? '_' : *b;
        if (x != y) return false;
        if (x == '\0') return true;
    }
}

bool sw__config_key_is_later(const char *name)
{
    for (size_t i = 0; i < SW_COUNT(later); i++) {
        if (sw__key_equal(later[i], name)) return true;
    }
    return false;
}

const sw_key_info *sw_config_about(sw_key k)
{
    return (unsigned)k < SW_KEY_COUNT ? &sw__keys[k].info : NULL;
}

bool sw_config_find(const char *name, sw_key *k)
{
    if (name == NULL || k == NULL) return false;
    for (int i = 0; i < SW_KEY_COUNT; i++) {
        if (!sw__key_equal(sw__keys[i].info.name, name)) continue;
        *k = (sw_key)i;
        return true;
    }
    return false;
}
