# CPack reads this in a build that uses every instruction of this machine's processor.
message(FATAL_ERROR "this build is for the processor of this machine, and a package travels.\n"
        "Build one for others: cmake --preset portable && cmake --build --preset portable && cd build/portable && cpack")
