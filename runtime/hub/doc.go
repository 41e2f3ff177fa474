// Package hub gets models by name from the Hugging Face Hub, or a server like it, and keeps them in the cache that the
// Hub's own Python client uses too, so that a model is downloaded once for both.
//
//	settings, err := hub.FromEnvironment()
//	ref, err := hub.ParseReference("qwen3:0.6b")
//	path, err := settings.Find(ref, "main")               // never touches the network
//	result, err := hub.Download(ctx, settings, hub.Request{Reference: ref})
//
// # The cache
//
// A model lies in models--ORG--NAME: refs/REVISION holds a commit, snapshots/COMMIT the files of that commit as relative
// links to blobs/HASH. Where links are not to be had, the files themselves lie in the snapshot. A file gets its final name
// only when it is whole, its hash is right and it is on the disk; until then it is blobs/HASH.mlxcel-part, beside a
// description of the parts that have arrived. A reference is written when everything that it leads to is there.
//
// # What is trusted
//
// Nothing that a server says: names become paths only if they are harmless on every system, sizes are bounded, and
// contents are checked against their git SHA-1 or SHA-256. Files are written through [os.Root], which links cannot leave.
// The token goes to the endpoint itself and to no other host, and over plain http only to this machine.
//
// Windows needs no \\?\ paths from here: package os, os.Root and so flock use them for paths that are long.
package hub
