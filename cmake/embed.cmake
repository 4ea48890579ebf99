# embed.cmake: writes a C file with the text of every portable/*.k, and sw__portable, which finds one by its name.
# cmake -DOUT=file.c "-DFILES=a.k;b.k" -P embed.cmake. Arrays of bytes: C11 promises only 4095 characters of a string.
set(text "/* made of the files of src/kernel/portable by cmake/embed.cmake */\n#include \"kernel/target.h\"\n\n")
set(table "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(0x0a,)" "\\1\n    " bytes "${bytes}")
  string(APPEND text "static const char text_${name}[] = {\n    ${bytes}0\n};\n\n")
  string(APPEND table "    {\"${name}\", text_${name}},\n")
endforeach()
string(APPEND text "static const struct { const char *name, *text; } files[] = {\n${table}};\n\n"
                   "const char *sw__portable(const char *name)\n{\n"
                   "    for (size_t i = 0; i < SW_COUNT(files); i++)\n"
                   "        if (strcmp(files[i].name, name) == 0) return files[i].text;\n    return NULL;\n}\n")
file(WRITE ${OUT} "${text}")
