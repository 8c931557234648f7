// Keys and values lie in pages of 64 slots. A kernel has the place of one layer's in page
// 0, how far it is from page to page, and a table of the sequence: its slots from 64 · i
// on are in page table[i].
constant constexpr uint page_slots = 64;
