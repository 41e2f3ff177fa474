package loader

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The first adapter has a budget, and one that does not exist has none.
func TestBudget(t *testing.T) {
	var factory *object
	result, _, _ := createFactory.Call(uintptr(unsafe.Pointer(&factory4)), uintptr(unsafe.Pointer(&factory)))
	require.GreaterOrEqual(t, int32(result), int32(0))
	const enumAdapters1, getDesc1 = 12, 10
	var adapter *object
	if !factory.call(enumAdapters1, 0, uintptr(unsafe.Pointer(&adapter))) {
		t.Skip("this system has no graphics adapter")
	}
	desc := new(struct {
		description [128]uint16
		ids         [4]uint32
		memory      [3]uint64
		luid        uint64
		flags       uint32
	})
	require.True(t, adapter.call(getDesc1, uintptr(unsafe.Pointer(desc))))
	bytes, known := GPU{luid: desc.luid}.Budget()
	require.True(t, known)
	require.Positive(t, bytes)
	t.Logf("%d bytes", bytes)
	for _, missing := range []uint64{0, 0x7fffffff7fffffff} {
		_, known = GPU{luid: missing}.Budget()
		require.False(t, known)
	}
}
