package main

import (
	"bytes"
	"debug/elf"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// gpuArchitectures returns the compute capabilities that a library has code for, in order, as in "8.0". One with an "a"
// behind it runs on this capability alone; "+ptx" is code that the driver compiles for newer ones.
func gpuArchitectures(path string) ([]string, error) {
	code, err := fatBinaries(path)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for len(code) > 0 {
		at := bytes.Index(code, fatMagic)
		if at < 0 {
			break
		}
		code = code[at:]
		var h struct {
			Magic           uint32
			Version, Header uint16
			Size            uint64
		}
		if err := binary.Read(bytes.NewReader(code), binary.LittleEndian, &h); err != nil || h.Size > uint64(len(code))-uint64(h.Header) {
			return nil, fmt.Errorf("the code for GPUs in %s is cut short", path)
		}
		for entries := code[h.Header : uint64(h.Header)+h.Size]; len(entries) >= 64; {
			var e struct {
				Kind, _      uint16
				Header       uint32
				Size         uint64
				_            [12]byte
				Architecture uint32
				_            [8]byte
				Flags        uint64
			}
			if err := binary.Read(bytes.NewReader(entries), binary.LittleEndian, &e); err != nil || uint64(e.Header)+e.Size > uint64(len(entries)) || e.Header == 0 {
				return nil, fmt.Errorf("the code for GPUs in %s is damaged", path)
			}
			// The key sorts by capability, then by kind.
			key := int(e.Architecture) * 4
			if e.Flags&oneArchitecture != 0 {
				key++
			}
			if e.Kind == kindPTX {
				key += 2
			}
			found[key] = true
			entries = entries[uint64(e.Header)+e.Size:]
		}
		code = code[uint64(h.Header)+h.Size:]
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no code for GPUs", path)
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(found)) {
		capability := key / 4
		names = append(names, fmt.Sprintf("%d.%d", capability/10, capability%10)+[]string{"", "a", "+ptx", "a+ptx"}[key%4])
	}
	return names, nil
}

// The format of code for GPUs in a library.
var fatMagic = []byte{0x50, 0xed, 0x55, 0xba}

const (
	kindPTX         = 1
	oneArchitecture = 0x100000 // flag of code such as sm_90a
)

// fatBinaries returns the section of a library with its code for GPUs.
func fatBinaries(path string) ([]byte, error) {
	if file, err := elf.Open(path); err == nil {
		defer file.Close()
		if s := file.Section(".nv_fatbin"); s != nil {
			return s.Data()
		}
	} else if file, err := pe.Open(path); err == nil {
		defer file.Close()
		if s := file.Section(".nv_fatb"); s != nil {
			return s.Data()
		}
	}
	return nil, fmt.Errorf("%s has no code for GPUs", path)
}
