// A program that holds a file as a virus scanner does: nobody else can open it meanwhile. It is run by
//     rundll32 hold.dll,hold MILLISECONDS FILE
// and makes FILE.held when it has begun.
#include <windows.h>

__declspec(dllexport) void CALLBACK hold(HWND window, HINSTANCE instance, LPSTR command, int show) {
  DWORD time = 0;
  for (; *command >= '0' && *command <= '9'; command++) time = 10 * time + (*command - '0');
  while (*command == ' ') command++;
  HANDLE file = CreateFileA(command, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL);
  if (file == INVALID_HANDLE_VALUE) ExitProcess(GetLastError());
  char marker[MAX_PATH];
  lstrcpynA(marker, command, MAX_PATH - 8);
  lstrcatA(marker, ".held");
  CloseHandle(CreateFileA(marker, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL));
  Sleep(time);
  ExitProcess(0);
}
