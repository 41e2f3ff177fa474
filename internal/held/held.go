// Package held opens and moves files that another program may hold for a moment: on Windows a virus scanner, or the search
// index, looks at every file that was just written, and until it is done nobody else can open, replace or delete that.
// Elsewhere files are never held like that, and nothing here waits.
package held

import "os"

// Open is os.Open, which is tried again for some seconds while another program holds the file.
func Open(path string) (f *os.File, err error) {
	err = Retry(Opening, func() error {
		f, err = os.Open(path)
		return err
	})
	return f, err
}

// ReadFile is os.ReadFile, which is tried again for some seconds while another program holds the file.
func ReadFile(path string) (data []byte, err error) {
	err = Retry(Opening, func() error {
		data, err = os.ReadFile(path)
		return err
	})
	return data, err
}
