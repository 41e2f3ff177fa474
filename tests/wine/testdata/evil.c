// A DLL that ends the process that loads it.
#include <windows.h>

BOOL WINAPI DllMain(HINSTANCE instance, DWORD reason, LPVOID reserved) {
  ExitProcess(66);
  return FALSE;
}
