// What pack.mjs packed, as it is. A file of its own: compilers' caches do not take it.
asm(R"(
.section .rodata
.global moeplan_web_pages
moeplan_web_pages:
.incbin ")" MOEPLAN_WEB_PAGES R"("
.previous
)");
