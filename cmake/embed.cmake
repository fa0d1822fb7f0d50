# stet_embed(OUT FILE…): a C source that has the bytes of the scripts, in their order, as stet__redis_scripts and
# stet__redis_script_lengths. Made when configuring; a changed file configures anew.
function(stet_embed out)
    set(arrays "")
    set(names "")
    set(lengths "")
    set(number 0)
    foreach(file ${ARGN})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(READ ${file} bytes HEX)
        string(LENGTH "${bytes}" length)
        math(EXPR length "${length} / 2")
        string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
        string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
        get_filename_component(name ${file} NAME)
        string(APPEND arrays "/* ${name} */\nstatic const unsigned char script_${number}[] = {\n${bytes}\n};\n\n")
        string(APPEND names "    script_${number},\n")
        string(APPEND lengths "    ${length},\n")
        math(EXPR number "${number} + 1")
    endforeach()
    file(CONFIGURE OUTPUT ${out} CONTENT
"/* Made by cmake/embed.cmake. */
#include \"store/redis.h\"

${arrays}const unsigned char *const stet__redis_scripts[REDIS_SCRIPTS] = {
${names}};

const size_t stet__redis_script_lengths[REDIS_SCRIPTS] = {
${lengths}};
" @ONLY)
endfunction()
