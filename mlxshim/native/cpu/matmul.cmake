# Sources of the matrix products, and what single files of them need to be compiled with: nothing else may be, so that a
# processor without these instructions never meets them. include() this in the folder that adds ${MLXCEL_MATMUL_SOURCES}
# to a target: properties of sources hold in one folder.
set(MLXCEL_MATMUL_DIR "${CMAKE_CURRENT_LIST_DIR}")
set(MLXCEL_MATMUL_SOURCES level.cpp matmul.cpp matmul_memory.cpp matmul_packed.cpp matmul_portable.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  # No contraction: every multiply-add is written as one, and results are the same for any compiler.
  set(avx2 -mavx2 -mfma -mf16c -ffp-contract=off)
  # GCC takes the undefined vectors of its own AVX-512 header for ours.
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -Wno-maybe-uninitialized)
  set(avxvnni ${avx2} -mavxvnni)
  if(MSVC AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(avx2 /arch:AVX2)
    set(avxvnni /arch:AVX2)
    set(avx512 /arch:AVX512)
  elseif(MSVC)  # clang-cl
    foreach(flags avx2 avxvnni avx512)
      list(TRANSFORM ${flags} PREPEND "/clang:")
    endforeach()
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(FILTER avx512 EXCLUDE REGEX "maybe-uninitialized")
  endif()
  # The unrolled kernels take a sanitizer minutes to compile at -O2. Undefined behaviour is looked for in the portable
  # ones; of vectors, UBSan would see little.
  if(MLXSHIM_SANITIZE)
    foreach(flags avx2 avxvnni avx512)
      list(APPEND ${flags} -O1 -g1 -fno-sanitize=undefined)
    endforeach()
  elseif(MLXSHIM_SANITIZE_THREADS)
    foreach(flags avx2 avxvnni avx512)
      list(APPEND ${flags} -O1 -g1)
    endforeach()
  endif()
  foreach(level avx2 avxvnni avx512)
    list(APPEND MLXCEL_MATMUL_SOURCES matmul_${level}.cpp)
    set_source_files_properties("${MLXCEL_MATMUL_DIR}/matmul_${level}.cpp" PROPERTIES COMPILE_OPTIONS "${${level}}")
  endforeach()
endif()
list(TRANSFORM MLXCEL_MATMUL_SOURCES PREPEND "${MLXCEL_MATMUL_DIR}/")
