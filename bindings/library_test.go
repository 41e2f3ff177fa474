package bindings

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// fake is a library whose first calls are Go functions: enough for New.
type fake struct {
	abi     int64
	layout  []int64
	info    string
	status  Status // of library_info
	missing string
}

func goodFake() *fake {
	f := &fake{abi: ABIVersion, info: `{"backend":"mlx","version":"1.0","built_for":"0.1","loaded":"0.1","devices":[{"device":"cpu","index":0,"name":"Z80"}]}`}
	for _, l := range layout {
		f.layout = append(f.layout, l.value)
	}
	return f
}

// answering is the fake that the functions below speak for.
var answering *fake

// A process can make only so many callbacks, so each is made once.
var fakeFunctions = sync.OnceValue(func() map[string]uintptr {
	return map[string]uintptr{
		"mlxshim_abi_version": purego.NewCallback(func(version *int64) uintptr {
			*version = answering.abi
			return uintptr(OK)
		}),
		"mlxshim_layout": purego.NewCallback(func(table *int64, capacity uintptr, count *int64) uintptr {
			copy(unsafe.Slice(table, capacity), answering.layout)
			*count = int64(len(answering.layout))
			return uintptr(OK)
		}),
		"mlxshim_library_info": purego.NewCallback(func(text *byte, capacity uintptr, length *int64) uintptr {
			copy(unsafe.Slice(text, capacity), answering.info)
			*length = int64(len(answering.info))
			return uintptr(answering.status)
		}),
		"mlxshim_last_error": purego.NewCallback(func(context uintptr, text *byte, capacity uintptr, length *int64) uintptr {
			*length = int64(copy(unsafe.Slice(text, capacity), "it broke"))
			return uintptr(OK)
		}),
		"": purego.NewCallback(func() uintptr { return uintptr(ErrInternal) }), // all others
	}
})

func (f *fake) symbol(name string) (uintptr, error) {
	if name == f.missing {
		return 0, errors.New("undefined symbol")
	}
	answering = f
	if function, ok := fakeFunctions()[name]; ok {
		return function, nil
	}
	return fakeFunctions()[""], nil
}

func TestNew(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*fake)
		error string // "" for a good library
		is    error
	}{
		{"good", func(f *fake) {}, "", nil},
		{"long info", func(f *fake) { f.info = strings.Repeat(" ", 5000) + f.info }, "", nil},
		{"other ABI", func(f *fake) { f.abi = 7; f.missing = "mlxshim_synchronize" },
			"the backend library has ABI 7, but this program needs ABI 3", ErrVersion},
		{"missing function", func(f *fake) { f.missing = "mlxshim_value_read" },
			"lacks the function mlxshim_value_read: undefined symbol", ErrVersion},
		{"other MLX", func(f *fake) { f.info = strings.Replace(f.info, `"loaded":"0.1"`, `"loaded":"0.2"`, 1) },
			"built for MLX 0.1, but MLX 0.2 is loaded", ErrVersion},
		{"other MLX by status", func(f *fake) {
			f.status = ErrVersion
			f.info = `{"built_for":"3","loaded":"4"}`
		}, "built for MLX 3, but MLX 4 is loaded", ErrVersion},
		{"failing info", func(f *fake) { f.status = ErrInternal }, "it broke", ErrInternal},
		{"broken info", func(f *fake) { f.info = "{" }, "not readable", nil},
		{"moved field", func(f *fake) { f.layout[2] = 99 },
			"offset of mlxshim_context_params.device is 99 in the backend library and 8 in this program", ErrVersion},
		{"one block more", func(f *fake) { f.layout = append(f.layout, 8) },
			fmt.Sprintf("by %d numbers, this program by %d", len(layout)+1, len(layout)), ErrVersion},
		{"one block less", func(f *fake) { f.layout = f.layout[:3] },
			fmt.Sprintf("by 3 numbers, this program by %d", len(layout)), ErrVersion},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := goodFake()
			test.spoil(f)
			l, err := New(f.symbol)
			if test.error == "" {
				require.NoError(t, err)
				require.Equal(t, Info{"mlx", "1.0", "0.1", "0.1", []DeviceName{{"cpu", 0, "Z80"}}}, l.Info())
				return
			}
			require.ErrorContains(t, err, test.error)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	err := fmt.Errorf("step 3: %w", &Error{Status: ErrMemory, Op: 4, Message: "no room"})
	require.ErrorIs(t, err, ErrMemory)
	require.NotErrorIs(t, err, ErrCompute)
	require.EqualError(t, err, "step 3: op 4: no room")
	require.EqualError(t, &Error{Status: ErrIO, Op: -1, Message: "no file"}, "no file")

	l, err := New(goodFake().symbol)
	require.NoError(t, err)
	_, err = l.NewContext(ContextParams{Device: DeviceCPU})
	require.ErrorIs(t, err, ErrInternal)
	require.EqualError(t, err, "it broke")
}

func TestNames(t *testing.T) {
	require.Equal(t, "rms_norm", OpRMSNorm.String())
	require.Equal(t, "op(0)", Op(0).String())
	require.Equal(t, "op(-5)", Op(-5).String())
	require.Equal(t, "op(1000)", Op(1000).String())
	require.Equal(t, "mxfp4", QuantMXFP4.String())
	require.Equal(t, "tokens", AxisTokens.String())
	require.Equal(t, "cuda", DeviceCUDA.String())
	require.Equal(t, "unsupported", ErrUnsupported.Error())
}

func TestDType(t *testing.T) {
	require.Equal(t, "bf16", BF16.String())
	require.Equal(t, "dtype(99)", DType(99).String())
	require.Equal(t, 2, BF16.Size())
	require.Zero(t, DType(-1).Size())
	require.True(t, F64.IsFloat())
	require.False(t, U64.IsFloat())
}
