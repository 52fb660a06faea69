/* QK-norm, RoPE, KV write and causal attention over a paged float32 cache.
 *
 * A context is cut at every SPAN positions. Each span gives a query its own maximum, sum and weighted values, and the
 * spans are merged in order: decode may spread spans over threads, prefill walks them, and both give the same bits.
 * Queries of one KV head (its heads times the row's tokens) form tiles, so that a key is read once for a tile.
 */
#include "attention.h"

#include <stdlib.h>

enum { SPAN = 256, TILE_QUERIES = 32, NORM_AT_ONCE = 8 };

typedef struct {
    int32_t row, kv_head;
    int32_t first, count; /* queries: token * group + head within the group */
    int32_t span;         /* the only span to do, or -1 for all of them */
    int32_t partial;      /* where its results wait for the merge, or -1 */
} tile;

typedef struct {
    const ft_attention *a;
    int64_t heads, group, dim;
    float *q;        /* [tokens, heads, dim], rotated and scaled */
    tile *tiles;
    float *partials; /* [partial, TILE_QUERIES, dim + 2] */
} work;

static void prepare(void *context, int64_t begin, int64_t end) {
    const work *w = context;
    const ft_attention *a = w->a;
    const int64_t dim = w->dim, per_token = w->heads + 2 * a->kv_heads;
    for (int64_t t = begin; t < end; t++) {
        const float *x = a->qkv + t * per_token * dim;
        const float *cos = a->cos + a->rope_rows[t] * (dim / 2), *sin = a->sin + a->rope_rows[t] * (dim / 2);
        const int64_t slot = a->slots[t];
        const int64_t base = slot / a->block_size * a->kv_heads * a->block_size + slot % a->block_size;
        for (int64_t h = 0; h < w->heads; h++)
            ft_norm_rotate(x + h * dim, a->q_norm, a->q_eps, cos, sin, dim, a->scale, w->q + (t * w->heads + h) * dim);
        if (slot < 0) continue; /* padding stores nothing */
        for (int64_t h = 0; h < a->kv_heads; h++) {
            const int64_t at = (base + h * a->block_size) * dim;
            ft_norm_rotate(x + (w->heads + h) * dim, a->k_norm, a->k_eps, cos, sin, dim, 1.0f, a->k + at);
            memcpy(a->v + at, x + (w->heads + a->kv_heads + h) * dim, (size_t)dim * sizeof(float));
        }
    }
}

/* One tile over one span: result [query][dim values, maximum, sum]; false for queries that see none of it. */
static void tile_span(const work *w, const tile *t, int64_t span, float *result, uint8_t *sees) {
    const ft_attention *a = w->a;
    const int64_t dim = w->dim, token0 = a->query_start[t->row], tokens = a->query_start[t->row + 1] - token0;
    const int64_t context = a->context_lens[t->row], start = span * SPAN;
    float scores[TILE_QUERIES][SPAN] __attribute__((aligned(64)));
    const float *q[TILE_QUERIES];
    int64_t at[SPAN], valid[TILE_QUERIES], longest = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t query = t->first + i, token = query / w->group;
        const int64_t head = t->kv_head * w->group + query % w->group;
        q[i] = w->q + ((token0 + token) * w->heads + head) * dim;
        int64_t n = context - tokens + token + 1 - start; /* positions of this span up to the token's own */
        valid[i] = n < 0 ? 0 : n > SPAN ? SPAN : n;
        sees[i] = n > 0;
        longest = valid[i] > longest ? valid[i] : longest;
    }
    const int32_t *table = a->block_tables + t->row * a->table_stride;
    for (int64_t c = 0; c < longest; c++) {
        const int64_t position = start + c, block = table[position / a->block_size];
        at[c] = ((block * a->kv_heads + t->kv_head) * a->block_size + position % a->block_size) * dim;
    }
    ft_scores(q, t->count, a->k, at, longest, dim, &scores[0][0], SPAN);
    for (int64_t i = 0; i < t->count; i++) {
        float *r = result + i * (dim + 2);
        if (sees[i]) ft_softmax(scores[i], valid[i], (longest + 7) & ~(int64_t)7, r + dim, r + dim + 1);
        else memset(scores[i], 0, (size_t)longest * sizeof(float));
    }
    ft_values(&scores[0][0], SPAN, t->count, a->v, at, longest, dim, result, dim + 2);
}

/* state, part: [dim values, maximum, sum]. */
static void merge(float *state, const float *part, int64_t dim) {
    const float a = state[dim], b = part[dim], most = a > b ? a : b;
    const float keep = expf(a - most), add = expf(b - most);
    for (int64_t d = 0; d < dim; d++) state[d] = state[d] * keep + part[d] * add;
    state[dim + 1] = state[dim + 1] * keep + part[dim + 1] * add;
    state[dim] = most;
}

static void finish(const work *w, const tile *t, const float *state) {
    const int64_t dim = w->dim, token0 = w->a->query_start[t->row];
    for (int64_t i = 0; i < t->count; i++, state += dim + 2) {
        const int64_t query = t->first + i, head = t->kv_head * w->group + query % w->group;
        float *out = w->a->out + ((token0 + query / w->group) * w->heads + head) * dim;
        const float inverse = 1.0f / state[dim + 1];
        for (int64_t d = 0; d < dim; d++) out[d] = state[d] * inverse;
    }
}

static int64_t spans_of(const ft_attention *a, int64_t row) { return (a->context_lens[row] + SPAN - 1) / SPAN; }

static void run_tiles(void *context, int64_t begin, int64_t end) {
    const work *w = context;
    float state[TILE_QUERIES * (MAX_DIM + 2)], part[TILE_QUERIES * (MAX_DIM + 2)];
    uint8_t sees[TILE_QUERIES];
    const int64_t stride = w->dim + 2;
    for (int64_t i = begin; i < end; i++) {
        const tile *t = &w->tiles[i];
        if (t->partial >= 0) {
            tile_span(w, t, t->span, w->partials + (int64_t)t->partial * TILE_QUERIES * stride, sees);
            continue;
        }
        tile_span(w, t, 0, state, sees); /* every query sees position 0 */
        for (int64_t span = 1; span < spans_of(w->a, t->row); span++) {
            tile_span(w, t, span, part, sees);
            for (int64_t k = 0; k < t->count; k++)
                if (sees[k]) merge(state + k * stride, part + k * stride, w->dim);
        }
        finish(w, t, state);
    }
}

/* Merges the spans of tiles that were spread over threads; they lie in order. */
static void merge_partials(const work *w, int64_t tiles) {
    const int64_t stride = w->dim + 2;
    const ft_attention *a = w->a;
    for (int64_t i = 0; i < tiles; i++) {
        const tile *t = &w->tiles[i];
        if (t->partial < 0 || t->span != 0) continue;
        float *state = w->partials + (int64_t)t->partial * TILE_QUERIES * stride;
        const int64_t tokens = a->query_start[t->row + 1] - a->query_start[t->row];
        for (int64_t span = 1; span < spans_of(a, t->row); span++)
            for (int64_t k = 0; k < t->count; k++) {
                const int64_t token = (t->first + k) / w->group;
                if (a->context_lens[t->row] - tokens + token < span * SPAN) continue;
                merge(state + k * stride, state + (span * TILE_QUERIES + k) * stride, w->dim);
            }
        finish(w, t, state);
    }
}

/* Lists the tiles; with NULL it only counts. A row of one tile and several spans is spread by span. */
static int64_t list_tiles(const work *w, tile *out, int64_t *partials) {
    int64_t n = 0;
    *partials = 0;
    for (int64_t row = 0; row < w->a->rows; row++) {
        const int64_t queries = (w->a->query_start[row + 1] - w->a->query_start[row]) * w->group;
        const int64_t spans = spans_of(w->a, row);
        const int spread = queries <= TILE_QUERIES && spans > 1;
        for (int64_t h = 0; h < w->a->kv_heads; h++)
            for (int64_t first = 0; first < queries; first += TILE_QUERIES)
                for (int64_t span = 0; span < (spread ? spans : 1); span++, n++) {
                    const int64_t partial = spread ? (*partials)++ : -1;
                    if (!out) continue;
                    const int64_t left = queries - first;
                    out[n] = (tile){.row = (int32_t)row, .kv_head = (int32_t)h, .first = (int32_t)first};
                    out[n].count = (int32_t)(left < TILE_QUERIES ? left : TILE_QUERIES);
                    out[n].span = spread ? (int32_t)span : -1;
                    out[n].partial = (int32_t)partial;
                }
    }
    return n;
}

/* 0, or 1 when memory is out, or 2 for a head size that is not a multiple of 16 up to MAX_DIM. */
FT_API int ft_attend(const ft_attention *a) {
    work w = {.a = a, .heads = a->heads, .group = a->heads / a->kv_heads, .dim = a->dim};
    if (a->dim % 16 || a->dim > MAX_DIM) return 2;
    if (!a->tokens) return 0;
    int64_t partials, work_size = 0;
    const int64_t count = list_tiles(&w, NULL, &partials);
    ft_enter();
    w.q = ft_scratch(1, (size_t)(a->tokens * w.heads * w.dim) * sizeof(float));
    w.tiles = ft_scratch(2, (size_t)(count + 1) * sizeof(tile));
    w.partials = ft_scratch(3, (size_t)((partials + 1) * TILE_QUERIES * (w.dim + 2)) * sizeof(float));
    if (!w.q || !w.tiles || !w.partials) {
        ft_leave();
        return 1;
    }
    list_tiles(&w, w.tiles, &partials);
    for (int64_t row = 0; row < a->rows; row++) work_size += a->context_lens[row] * w.heads * w.dim;
    if (a->tokens <= NORM_AT_ONCE) prepare(&w, 0, a->tokens);
    else ft_parallel(prepare, &w, a->tokens, NORM_AT_ONCE);
    if (work_size < 50000) run_tiles(&w, 0, count); /* waking others costs more */
    else ft_parallel(run_tiles, &w, count, 1);
    if (partials) merge_partials(&w, count);
    ft_leave();
    return 0;
}
