/* format.c: numbers as people write them: 138 k, 11.3 MiB, 3 min 05 s, 54 000.
 * For everything that a command prints for people. */
#include "cli.h"
#include <math.h>

static const char *none(cli_text b)
{
    snprintf(b, sizeof(cli_text), "-");
    return b;
}

/* Three digits that count: 9.71, 97.1, 971. */
static void three_digits(char *b, size_t size, double x, const char *unit)
{
    const double a = fabs(x);
    snprintf(b, size, "%.*f%s%s", a < 9.995 ? 2 : a < 99.95 ? 1 : 0, x, *unit != '\0' ? " " : "", unit);
}

const char *cli_si(cli_text b, double x)
{
    static const char *const units[] = { "", "k", "M", "G", "T", "P" };
    size_t i = 0;
    if (!isfinite(x)) return none(b);
    for (; fabs(x) >= 999.5 && i + 1 < CLI_COUNT(units); i++) x /= 1000;
    three_digits(b, sizeof(cli_text), x, units[i]);
    return b;
}

const char *cli_bytes(cli_text b, double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t i = 0;
    for (; fabs(bytes) >= 1023.5 && i + 1 < CLI_COUNT(units); i++) bytes /= 1024;
    snprintf(b, sizeof(cli_text), "%.*f %s", i > 0 && fabs(bytes) < 99.95 ? 1 : 0, bytes, units[i]);
    return b;
}

const char *cli_seconds(cli_text b, double s)
{
    if (!(s >= 0) || s > 1e9) return none(b);
    const long long n = llround(s);
    if (s < 0.0995)
        snprintf(b, sizeof(cli_text), "%.0f ms", s * 1000);
    else if (s < 9.95)
        snprintf(b, sizeof(cli_text), "%.1f s", s);
    else if (n < 60)
        snprintf(b, sizeof(cli_text), "%lld s", n);
    else if (n >= 600 && n < 3600)
        snprintf(b, sizeof(cli_text), "%lld min", n / 60);
    else if (n < 3600)
        snprintf(b, sizeof(cli_text), "%lld min %02lld s", n / 60, n % 60);
    else if (n < 86400)
        snprintf(b, sizeof(cli_text), "%lld h %02lld min", n / 3600, n / 60 % 60);
    else
        snprintf(b, sizeof(cli_text), "%lld d %02lld h", n / 86400, n / 3600 % 24);
    return b;
}

const char *cli_count(cli_text b, int64_t n)
{
    char digits[24];
    const int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    size_t k = 0;
    const int sign = n < 0 ? 1 : 0;
    const int group = len - sign > 4 ? 3 : 99; /* 1797 needs no gap, 54 000 does */
    for (int i = 0; i < len && k + 2 < sizeof(cli_text); i++) {
        if (i > sign && (len - i) % group == 0) b[k++] = ' ';
        b[k++] = digits[i];
    }
    b[k] = '\0';
    return b;
}
