package bindings_test

import (
	"errors"
	"fmt"

	"mlxcel/bindings"
)

// Errors of a backend library tell what kind they are and which op they are about.
func ExampleError() {
	err := fmt.Errorf("step 12: %w", &bindings.Error{Status: bindings.ErrMemory, Op: 3, Message: "no room for 8 MB"})
	var failure *bindings.Error
	if errors.Is(err, bindings.ErrMemory) && errors.As(err, &failure) {
		fmt.Println(failure.Op, failure.Message)
	}
	fmt.Println(bindings.OpRMSNorm, bindings.BF16, bindings.QuantMXFP4)
	// Output:
	// 3 no room for 8 MB
	// rms_norm bf16 mxfp4
}
