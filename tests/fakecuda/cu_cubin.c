/* cu_cubin.c: what the real CUBIN behind the PTX tells of a kernel: the registers that ptxas gave it, and the bytes of
 * its stack, spilled registers included. See cu.h. */
#include "cu.h"

#include <elf.h>
#include <string.h>

enum { EIFMT_SVAL = 0x04 };

size_t fk_cubin_bytes(const unsigned char *elf)
{
    Elf64_Ehdr h;
    memcpy(&h, elf, sizeof h);
    const size_t sections = (size_t)h.e_shoff + (size_t)h.e_shnum * h.e_shentsize;
    const size_t segments = (size_t)h.e_phoff + (size_t)h.e_phnum * h.e_phentsize;
    return sections > segments ? sections : segments;
}

static bool section(const unsigned char *elf, size_t n, size_t i, Elf64_Shdr *s)
{
    Elf64_Ehdr h;
    memcpy(&h, elf, sizeof h);
    if (i >= h.e_shnum || h.e_shoff + (i + 1) * sizeof *s > n) return false;
    memcpy(s, elf + h.e_shoff + i * sizeof *s, sizeof *s);
    return s->sh_type == SHT_NOBITS || (s->sh_offset <= n && s->sh_size <= n - s->sh_offset);
}

static const char *name_of(const unsigned char *elf, size_t n, const Elf64_Shdr *names, uint32_t at)
{
    return at < names->sh_size && names->sh_offset + at < n ? (const char *)elf + names->sh_offset + at : "";
}

/* The value of an attribute by the number of the symbol, in .nv.info. */
static int listed(const unsigned char *at, size_t n, int what, uint32_t symbol)
{
    for (size_t i = 0; i + 4 <= n;) {
        uint16_t size;
        uint32_t pair[2];
        memcpy(&size, at + i + 2, sizeof size);
        if (at[i] != EIFMT_SVAL) size = 0; /* the value is within the four bytes */
        if (at[i] == EIFMT_SVAL && at[i + 1] == what && size >= 8 && i + 12 <= n) {
            memcpy(pair, at + i + 4, sizeof pair);
            if (pair[0] == symbol) return (int)pair[1];
        }
        i += 4u + size;
    }
    return -1;
}

static uint32_t symbol_of(const unsigned char *elf, size_t n, const char *kernel)
{
    Elf64_Shdr table, names;
    for (size_t i = 0; section(elf, n, i, &table); i++) {
        if (table.sh_type != SHT_SYMTAB || !section(elf, n, table.sh_link, &names)) continue;
        for (uint32_t k = 0; k < table.sh_size / sizeof(Elf64_Sym); k++) {
            Elf64_Sym s;
            memcpy(&s, elf + table.sh_offset + k * sizeof s, sizeof s);
            if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && strcmp(name_of(elf, n, &names, s.st_name), kernel) == 0)
                return k;
        }
    }
    return 0;
}

int fk_cubin_value(const unsigned char *elf, size_t n, const char *kernel, int what)
{
    Elf64_Ehdr h;
    Elf64_Shdr names, s;
    if (n < sizeof h) return -1;
    memcpy(&h, elf, sizeof h);
    if (!section(elf, n, h.e_shstrndx, &names)) return -1;
    const uint32_t symbol = symbol_of(elf, n, kernel);
    for (size_t i = 0; symbol != 0 && section(elf, n, i, &s); i++)
        if (strcmp(name_of(elf, n, &names, s.sh_name), ".nv.info") == 0)
            return listed(elf + s.sh_offset, s.sh_size, what, symbol);
    return -1;
}
