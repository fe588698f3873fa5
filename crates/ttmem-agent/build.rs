//! Compiles the shim: the only code that calls into the runtime.

fn main() {
    for file in ["shim.hpp", "shim.cpp", "shim_programs.cpp"] {
        println!("cargo:rerun-if-changed=src/{file}");
    }
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .files(["src/shim.cpp", "src/shim_programs.cpp"])
        .flag("-fno-rtti")
        .flag("-fvisibility=hidden")
        // Where there is no C++ library to catch with, what is thrown must meet no frame of ours: calls through are jumps.
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        // The C++ library is the runtime's own, found when the runtime is: loading another one into every process
        // that is watched could keep the right one out.
        .cpp_link_stdlib(None)
        .compile("ttmem_shim");
}
