package main

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A peImage is what an audit wants to know of a program or library for Windows.
type peImage struct {
	machine uint16
	flags   uint16   // DllCharacteristics
	console bool     // a program that runs in the console that it is started from
	imports []string // DLLs that it is loaded with
	delayed []string // DLLs that are loaded when one of their functions is first called
}

// readPE reads the headers and the names of imported DLLs. The library debug/pe lists imported symbols only: it leaves
// out a DLL whose symbols are all imported by number, and DLLs that are loaded late.
func readPE(path string) (*peImage, error) {
	file, err := pe.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s is no program or library for Windows: %w", path, err)
	}
	defer file.Close()
	header, ok := file.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return nil, fmt.Errorf("%s is not for 64 bits", path)
	}
	image := &peImage{machine: file.Machine, flags: header.DllCharacteristics, console: header.Subsystem == pe.IMAGE_SUBSYSTEM_WINDOWS_CUI}
	// A descriptor is 20 bytes, or 32 for delayed ones, and has the address of the DLL's name at a fixed place. The
	// table ends with one that is zero.
	for _, table := range []struct {
		entry, size, name int
		to                *[]string
	}{
		{pe.IMAGE_DIRECTORY_ENTRY_IMPORT, 20, 12, &image.imports},
		{pe.IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT, 32, 4, &image.delayed},
	} {
		address := header.DataDirectory[table.entry].VirtualAddress
		if address == 0 {
			continue
		}
		descriptors, err := at(file, address)
		if err != nil {
			return nil, fmt.Errorf("%s: its imports: %w", path, err)
		}
		for {
			if len(descriptors) < table.size {
				return nil, fmt.Errorf("%s: its table of imports has no end", path)
			}
			d := descriptors[:table.size]
			descriptors = descriptors[table.size:]
			if bytes.Count(d, []byte{0}) == len(d) {
				break
			}
			text, err := at(file, binary.LittleEndian.Uint32(d[table.name:]))
			if err != nil {
				return nil, fmt.Errorf("%s: the name of an import: %w", path, err)
			}
			name, _, ended := bytes.Cut(text[:min(len(text), 260)], []byte{0})
			if !ended || len(name) == 0 {
				return nil, fmt.Errorf("%s: the name of an import has no end", path)
			}
			*table.to = append(*table.to, strings.ToLower(string(name)))
		}
	}
	return image, nil
}

// at returns what follows a relative address, to the end of its section.
func at(file *pe.File, address uint32) ([]byte, error) {
	for _, s := range file.Sections {
		if address < s.VirtualAddress || address-s.VirtualAddress >= s.Size {
			continue
		}
		part := make([]byte, s.Size-(address-s.VirtualAddress))
		if _, err := s.ReadAt(part, int64(address-s.VirtualAddress)); err != nil {
			return nil, err
		}
		return part, nil
	}
	return nil, errors.New("its address lies in no section")
}
