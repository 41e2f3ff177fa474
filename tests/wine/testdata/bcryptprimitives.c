// The one function of bcryptprimitives.dll that Go's programs call. Wine 8 has no such DLL; Windows always does.
#include <windows.h>

// RtlGenRandom, under the name that advapi32.dll exports it by.
BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) {
  while (length > 0) {
    ULONG piece = length > (1u << 30) ? 1u << 30 : (ULONG)length;
    if (!SystemFunction036(data, piece)) return FALSE;
    data += piece;
    length -= piece;
  }
  return TRUE;
}
