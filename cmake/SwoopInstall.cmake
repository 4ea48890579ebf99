# What `cmake --install` and the Debian package hold: headers, both libraries, pkg-config and CMake files, the command.

include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/swoop DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(TARGETS swoop EXPORT SwoopTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS swoop_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET swoop_command)
  install(TARGETS swoop_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/digits DESTINATION ${CMAKE_INSTALL_DATADIR}/swoop)
install(FILES ${PROJECT_SOURCE_DIR}/data/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/swoop)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
if(EXISTS ${PROJECT_SOURCE_DIR}/README.md)
  install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

# The lower-case name serves find_package(swoop) and find_package(Swoop); the target is swoop::swoop.
set(swoop_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/swoop)
install(EXPORT SwoopTargets NAMESPACE swoop:: DESTINATION ${swoop_cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/swoop-config.cmake.in ${PROJECT_BINARY_DIR}/swoop-config.cmake
                              INSTALL_DESTINATION ${swoop_cmake_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/swoop-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/swoop-config.cmake ${PROJECT_BINARY_DIR}/swoop-config-version.cmake
        DESTINATION ${swoop_cmake_dir})

# swoop.pc finds its own prefix, so that a tree that was moved or staged still works.
string(JOIN " " swoop_pc_modules libxxhash ${swoop_optional_modules})
string(REGEX REPLACE "[^/]+" ".." swoop_pc_depth "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
configure_file(${PROJECT_SOURCE_DIR}/cmake/swoop.pc.in ${PROJECT_BINARY_DIR}/swoop.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/swoop.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "swoop developers <swoop@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# oneDNN is opened at run time, so that no tool finds it among the linked libraries: the package that owns it is named here.
file(REAL_PATH ${DNNL_LIBRARY} dnnl_file)
execute_process(COMMAND dpkg-query -S ${dnnl_file} OUTPUT_VARIABLE dnnl_package ERROR_QUIET)
if(dnnl_package MATCHES "^([^:]+):")
  set(CPACK_DEBIAN_PACKAGE_DEPENDS ${CMAKE_MATCH_1})
endif()
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
