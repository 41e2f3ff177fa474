# The smoke list of docs/windows.md, with an archive of ours and nothing else: unpacks it into a folder with a space and
# letters outside ASCII, runs both programs, and stops at the first thing that is not as it should be.
param(
  [Parameter(Mandatory)] [string] $Zip,
  [string] $Device = "auto", # as --device takes it
  [string] $Model = ""       # to be downloaded; without, the model of the archive's demo is taken from the build
)
$ErrorActionPreference = "Stop"
Set-StrictMode -Version Latest

function Check([string] $What, [bool] $Right) {
  if (-not $Right) { throw "smoke test: $What" }
  Write-Host "ok  $What"
}

$folder = Join-Path (New-Item -ItemType Directory -Force "smoke") "Modèle 模型 with spaces"
Expand-Archive -Force $Zip $folder
$mlxcel = Get-ChildItem $folder -Recurse -Filter mlxcel.exe | Select-Object -First 1 -ExpandProperty FullName
$server = Get-ChildItem $folder -Recurse -Filter mlxcel-server.exe | Select-Object -First 1 -ExpandProperty FullName

foreach ($program in $mlxcel, $server) {
  $version = & $program --version
  Check "$(Split-Path -Leaf $program) --version: $version" ($LASTEXITCODE -eq 0 -and $version -match "^mlxcel")
}

& $mlxcel doctor | Tee-Object "smoke/doctor.txt"
Check "doctor finds nothing wrong" ($LASTEXITCODE -eq 0)

if ($Model) {
  & $mlxcel download $Model
  Check "download $Model" ($LASTEXITCODE -eq 0)
} else {
  $Model = (Get-Item "bin/models/*.gguf" | Select-Object -First 1).FullName
}

$answer = & $mlxcel generate --device $Device -m $Model -p "Hello" -n 16 --json | ConvertFrom-Json
Check "generate: $($answer.token_ids.Count) tokens" ($answer.token_ids.Count -ge 1 -and $answer.token_ids.Count -le 16)

& $mlxcel selftest --device $Device --report "smoke/selftest.txt"
Check "selftest" ($LASTEXITCODE -eq 0)

$process = Start-Process $server -ArgumentList "--device", $Device, "-m", "`"$Model`"", "--port", "8137" -PassThru -NoNewWindow
try {
  for ($i = 0; $i -lt 120; $i++) {
    Start-Sleep -Milliseconds 500
    try { if ((Invoke-WebRequest "http://127.0.0.1:8137/health" -UseBasicParsing).StatusCode -eq 200) { break } } catch { }
  }
  $body = @{ messages = @(@{ role = "user"; content = "Hello" }); max_tokens = 16 } | ConvertTo-Json -Depth 4
  $reply = Invoke-RestMethod "http://127.0.0.1:8137/v1/chat/completions" -Method Post -ContentType "application/json" -Body $body
  Check "chat completion: $($reply.choices[0].finish_reason)" ($reply.usage.completion_tokens -ge 1)
} finally {
  Stop-Process -Id $process.Id
}
Write-Host "everything on the smoke list works"
