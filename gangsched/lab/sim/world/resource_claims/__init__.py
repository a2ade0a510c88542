"""Dynamic Resource Allocation as simulated: claims' writes, their controller, drivers, another allocator."""
