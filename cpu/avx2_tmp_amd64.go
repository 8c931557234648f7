package cpu

func avx2Tile(a *tileArgs) {}
