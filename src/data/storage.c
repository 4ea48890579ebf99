/* storage.c: shared storage of data set handles, and the background read of a large IDX file.
 * Inside data; see storage.h. */
#include "data/storage.h"

enum { CHUNK = 4 * 1024 * 1024 }; /* how often a background read looks whether it is still wanted */

/* ---- background -------------------------------------------------------------------------------------------------- */

static sw_status read_chunks(sw__background *b)
{
    uint8_t *const data = b->x.data;
    for (size_t done = 0; done < b->bytes;) {
        if (atomic_load(&b->give_up)) return sw__fail(SW_ERR_INTERRUPTED, "the data set was closed while it was read");
        const size_t n = SW_MIN(b->bytes - done, (size_t)CHUNK);
        SW_TRY(sw__stream_read(&b->stream, data + done, n, "its data"));
        done += n;
    }
    return sw__stream_end(&b->stream);
}

static void *background_main(void *argument)
{
    sw__background *const b = argument;
    b->status = read_chunks(b);
    /* Messages are per thread: carried over to whoever waits. */
    if (b->status != SW_OK) {
        const char *const message = sw_error();
        const size_t n = SW_MIN(strlen(message), sizeof b->message - 1);
        memcpy(b->message, message, n);
        b->message[n] = '\0';
    }
    sw__stream_close(&b->stream);
    return NULL;
}

sw_status sw__background_start(sw__background *b, sw__stream *s, const sw_array *x)
{
    *b = (sw__background){ .stream = *s, .x = *x, .bytes = x->bytes };
    atomic_init(&b->done, false);
    atomic_init(&b->give_up, false);
    int err = pthread_mutex_init(&b->lock, NULL);
    if (err == 0) {
        err = pthread_create(&b->thread, NULL, background_main, b);
        if (err != 0) pthread_mutex_destroy(&b->lock);
    }
    if (err == 0) return SW_OK;
    const sw_status st = sw__fail(SW_ERR_THREAD, "%s: cannot start a thread to read it: %s", s->name, strerror(err));
    sw__stream_close(s);
    return st;
}

sw_status sw__background_wait(sw__background *b)
{
    if (!atomic_load_explicit(&b->done, memory_order_acquire)) {
        pthread_mutex_lock(&b->lock);
        if (!b->joined) pthread_join(b->thread, NULL);
        b->joined = true;
        atomic_store_explicit(&b->done, true, memory_order_release);
        pthread_mutex_unlock(&b->lock);
    }
    return b->status == SW_OK ? SW_OK : sw__fail(b->status, "%s", b->message);
}

void sw__background_finish(sw__background *b)
{
    atomic_store(&b->give_up, true);
    if (!b->joined) pthread_join(b->thread, NULL);
    pthread_mutex_destroy(&b->lock);
}

/* ---- storage ----------------------------------------------------------------------------------------------------- */

sw_status sw__storage_new(const char *name, const char *format, sw__storage **out)
{
    sw__storage *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a data set");
    atomic_init(&s->handles, 1);
    s->format = format;
    s->name = sw__arena_strdup(&s->arena, name);
    s->x_name = s->y_name = s->name;
    if (s->name == NULL) {
        sw__storage_release(s);
        return sw__no_memory(strlen(name), "a data set's name");
    }
    *out = s;
    return SW_OK;
}

void sw__storage_release(sw__storage *s)
{
    if (s == NULL || atomic_fetch_sub(&s->handles, 1) != 1) return;
    if (s->background != NULL) sw__background_finish(s->background);
    sw__free(s->background);
    if (s->own_x) sw__free(s->x.data);
    if (s->own_y) sw__free(s->y.data);
    sw__free(s->lengths.data);
    sw_safetensors_close(s->file);
    if (s->has_callback && s->callback.release != NULL) s->callback.release(s->callback.context);
    sw__arena_free(&s->arena);
    sw__free(s);
}

sw_status sw__storage_ready(const sw__storage *s)
{
    return s->background == NULL ? SW_OK : sw__background_wait(s->background);
}
