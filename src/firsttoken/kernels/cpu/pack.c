/* Weights into the packed form and back. Single-threaded: a loader calls these from several threads at once. */
#include "linear.h"

enum { Q4_0 = 2, Q4_1 = 3, Q8_0 = 8 }; /* ggml's numbers */

static uint8_t *group_at(const ft_linear *w, int64_t row, int64_t g) {
    return w->data + (row / ROWS * groups_of(w) + g) * group_bytes(w);
}

static void put_half(uint8_t *group, int64_t at, uint16_t half) { memcpy(group + 2 * at, &half, 2); }

static float get_half(const uint8_t *group, int64_t at) {
    uint16_t half;
    memcpy(&half, group + 2 * at, 2);
    return half_to_float(half);
}

/* 16 bytes of nibbles in ggml's order (inputs 0..15 low, 16..31 high), which is the order of the lines too. */
static void put4(const ft_linear *w, int64_t row, int64_t g, uint16_t scale, uint16_t low, const uint8_t *nibbles) {
    uint8_t *group = group_at(w, row, g);
    const int64_t lane = row % ROWS;
    put_half(group, lane, scale);
    put_half(group, ROWS + lane, low);
    for (int s = 0; s < 4; s++) memcpy(group + 64 + 64 * s + 4 * lane, nibbles + 4 * s, 4);
}

static void put8(const ft_linear *w, int64_t row, int64_t g, uint16_t scale, const void *bytes) {
    uint8_t *group = group_at(w, row, g);
    const int64_t lane = row % ROWS;
    put_half(group, lane, scale);
    for (int s = 0; s < 8; s++) memcpy(group + 32 + 64 * s + 4 * lane, (const uint8_t *)bytes + 4 * s, 4);
}

/* GGUF rows [rows, stride bytes] of `type` become rows row0... of `w`, bit for bit. 0, or 1 for a type that does not
 * fit w->bits. */
FT_API int ft_pack_gguf(const ft_linear *w, int64_t row0, int64_t rows, int64_t type, const uint8_t *src, int64_t stride) {
    const int64_t groups = groups_of(w);
    if (w->bits == 4 ? type != Q4_0 && type != Q4_1 : type != Q8_0) return 1;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *p = src + r * stride;
        for (int64_t g = 0; g < groups; g++) {
            uint16_t scale, low;
            memcpy(&scale, p, 2);
            if (type == Q4_1) {
                memcpy(&low, p + 2, 2);
                put4(w, row0 + r, g, scale, low, p + 4);
                p += 20;
            } else if (type == Q4_0) {
                low = float_to_half(-8.0f * half_to_float(scale)); /* a power of two: exact */
                put4(w, row0 + r, g, scale, low, p + 2);
                p += 18;
            } else {
                put8(w, row0 + r, g, scale, p + 2);
                p += 34;
            }
        }
    }
    return 0;
}

/* The float16 at or above x, so that no quantised value needs more than its range. */
static uint16_t half_up(float x) {
    uint16_t half = float_to_half(x);
    return half_to_float(half) < x ? (uint16_t)(half + 1) : half;
}

static float clamp(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

static void quantize8(const ft_linear *w, int64_t row, int64_t g, const float *x) {
    float largest = 0.0f;
    for (int i = 0; i < GROUP; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    const uint16_t half = half_up(largest / 127.0f);
    const float scale = half_to_float(half), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    int8_t q[GROUP];
    for (int i = 0; i < GROUP; i++) q[i] = (int8_t)clamp(rintf(x[i] * inverse), -127.0f, 127.0f);
    put8(w, row, g, half, q);
}

static float nibbles_for(const float *x, float scale, float low, uint8_t *level) {
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    float error = 0.0f;
    for (int i = 0; i < GROUP; i++) {
        const float q = clamp(rintf((x[i] - low) * inverse), 0.0f, 15.0f), e = x[i] - (low + scale * q);
        level[i] = (uint8_t)q;
        error += e * e;
    }
    return error;
}

/* Tries a few ranges inside [min, max]: cutting the outermost weights a little often lowers the squared error. */
static void quantize4(const ft_linear *w, int64_t row, int64_t g, const float *x) {
    float least = x[0], most = x[0], best = INFINITY;
    uint16_t best_scale = 0, best_low = 0;
    uint8_t level[GROUP], kept[GROUP] = {0}, nibbles[GROUP / 2];
    for (int i = 1; i < GROUP; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    for (int step = 0; step < 5; step++) {
        const float cut = 0.025f * (float)step * (most - least);
        const uint16_t low = float_to_half(least + cut), scale = half_up((most - least - 2.0f * cut) / 15.0f);
        const float error = nibbles_for(x, half_to_float(scale), half_to_float(low), level);
        if (error < best) {
            best = error, best_scale = scale, best_low = low;
            memcpy(kept, level, sizeof kept);
        }
    }
    for (int i = 0; i < GROUP / 2; i++) nibbles[i] = (uint8_t)(kept[i] | kept[GROUP / 2 + i] << 4);
    put4(w, row, g, best_scale, best_low, nibbles);
}

/* Rounds float rows [rows, in] to w->bits as rows row0... of `w`. */
FT_API void ft_pack_float(const ft_linear *w, int64_t row0, int64_t rows, const float *src) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups_of(w); g++) {
            const float *x = src + r * w->in + g * GROUP;
            if (w->bits == 4) quantize4(w, row0 + r, g, x);
            else quantize8(w, row0 + r, g, x);
        }
}

static void unpack_row(const ft_linear *w, int64_t row, float *out) {
    const int64_t lane = row % ROWS;
    for (int64_t g = 0; g < groups_of(w); g++, out += GROUP) {
        const uint8_t *group = group_at(w, row, g);
        const float scale = get_half(group, lane);
        if (w->bits == 4) {
            const float low = get_half(group, ROWS + lane);
            for (int i = 0; i < 16; i++) {
                const uint8_t both = group[64 + 64 * (i / 4) + 4 * lane + i % 4];
                out[i] = scale * (float)(both & 15) + low;
                out[16 + i] = scale * (float)(both >> 4) + low;
            }
        } else {
            for (int i = 0; i < GROUP; i++)
                out[i] = scale * (float)(int8_t)group[32 + 64 * (i / 4) + 4 * lane + i % 4];
        }
    }
}

/* The rows of `ids`, as floats [count, in]: the embedding of a table that is also the head. 1 if an id is outside. */
FT_API int ft_rows_of(const ft_linear *w, const int64_t *ids, int64_t count, float *out) {
    for (int64_t k = 0; k < count; k++) {
        if (ids[k] < 0 || ids[k] >= w->out) return 1;
        unpack_row(w, ids[k], out + k * w->in);
    }
    return 0;
}

/* The whole weight as floats [out, in]. */
FT_API void ft_unpack(const ft_linear *w, float *out) {
    for (int64_t row = 0; row < w->out; row++) unpack_row(w, row, out + row * w->in);
}
