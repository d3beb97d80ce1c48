// What protoc describes, as it is. A file of its own: compilers' caches do not take it.
asm(R"(
.section .rodata
.global moeplan_proto_descriptors
.global moeplan_proto_descriptors_end
moeplan_proto_descriptors:
.incbin ")" MOEPLAN_PROTO_DESCRIPTORS R"("
moeplan_proto_descriptors_end:
.previous
)");
