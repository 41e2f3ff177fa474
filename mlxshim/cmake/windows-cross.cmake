# Builds for Windows on x86-64 from another system, with LLVM: clang-cl and lld-link, or the same with a version behind a
# dash. MSVC_ROOT is a folder with "VC/Tools/MSVC/*" and "Windows Kits/10": Microsoft's headers and import libraries, as
# `go run ./dist setup --windows` unpacks them. Microsoft's licence terms apply to them; they are read by the build only,
# and nothing of them is part of this project or its releases.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)

set(MSVC_ROOT "$ENV{MSVC_ROOT}" CACHE PATH "The folder with VC/Tools/MSVC and Windows Kits/10")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MSVC_ROOT)
set(CMAKE_TRY_COMPILE_CONFIGURATION Release)  # there is no debug runtime to link with
if(NOT IS_DIRECTORY "${MSVC_ROOT}/VC/Tools/MSVC" OR NOT IS_DIRECTORY "${MSVC_ROOT}/Windows Kits/10")
  message(FATAL_ERROR "MSVC_ROOT=${MSVC_ROOT} has no VC/Tools/MSVC or no \"Windows Kits/10\": "
                      "run `go run ./dist setup --windows`, which unpacks them and says where")
endif()

foreach(tool clang-cl lld-link llvm-lib llvm-rc llvm-mt)
  string(MAKE_C_IDENTIFIER "${tool}" variable)
  find_program(WINDOWS_CROSS_${variable} NAMES ${tool} ${tool}-19 ${tool}-20 ${tool}-21)
endforeach()
set(CMAKE_CXX_COMPILER "${WINDOWS_CROSS_clang_cl}")
set(CMAKE_CXX_COMPILER_TARGET x86_64-pc-windows-msvc)
set(CMAKE_LINKER "${WINDOWS_CROSS_lld_link}")
set(CMAKE_AR "${WINDOWS_CROSS_llvm_lib}")
set(CMAKE_RC_COMPILER "${WINDOWS_CROSS_llvm_rc}")
set(CMAKE_MT "${WINDOWS_CROSS_llvm_mt}")

set(CMAKE_CXX_FLAGS_INIT "/winsysroot \"${MSVC_ROOT}\"")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "\"/winsysroot:${MSVC_ROOT}\" /MANIFEST:NO")
endforeach()
# Windows itself asks for no case, but the file system here does; dist makes links with lower-case names.

# Packages and headers of the building system are not those of Windows.
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE NEVER)
