#include "check.h"

int main(int argc, char** argv) { return test::run_all(argc, argv); }
