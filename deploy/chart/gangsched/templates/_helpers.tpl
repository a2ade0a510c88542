{{/* The objects in files/<file>.yaml, as `make chart` took them from deploy/, in the release's namespace. */}}
{{- define "gangsched.objects" -}}
{{- $objects := list -}}
{{- $text := .root.Files.Get (printf "files/%s.yaml" .file) -}}
{{- $namespace := .root.Release.Namespace -}}
{{- /* A name such as 2026 would be a number. */ -}}
{{- if not (kindIs "string" (printf "is: %s" $namespace | fromYaml).is) -}}
{{- $text = regexReplaceAll "(?m)(: |- )gangsched-system$" $text (printf "${1}%s" (quote $namespace)) -}}
{{- end -}}
{{- range splitList "\n---\n" ($text | replace "gangsched-system" $namespace) -}}
{{- $objects = append $objects (fromYaml .) -}}
{{- end -}}
{{- toYaml (dict "objects" $objects) -}}
{{- end -}}

{{- define "gangsched.image" -}}
{{- if contains ":" (splitList "/" .repository | last) -}}
{{- fail (printf "image.repository is %s, with a tag: what follows the last colon is image.tag" .repository) -}}
{{- end -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default .appVersion }}
{{- end -}}
{{- end -}}

{{/* The name of a generated ConfigMap as kustomize makes it (it leaves the name out of the hash): another content is another
     name, and is rolled out. */}}
{{- define "gangsched.configMapName" -}}
{{- $hash := dict "kind" "ConfigMap" "name" "" "data" .data | toJson | sha256sum | trunc 10 -}}
{{ .name }}-{{ $hash | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end -}}

{{/* What the configuration amounts to, as {scheduler: ..., gangsched: ...}. `text`: deploy/config/scheduler.yaml. */}}
{{- define "gangsched.config" -}}
{{- $documents := splitList "\n---\n" .text -}}
{{- $scheduler := mergeOverwrite (fromYaml (index $documents 0)) (.values.scheduler | default dict) -}}
{{- $gangsched := mergeOverwrite (fromYaml (index $documents 1)) (.values.gangsched | default dict) -}}
{{- toYaml (dict "scheduler" $scheduler "gangsched" $gangsched) -}}
{{- end -}}

{{/* What the image and its pull secrets are, into a pod's spec. */}}
{{- define "gangsched.setImage" -}}
{{- $container := first .pod.containers -}}
{{- $_ := set $container "image" (include "gangsched.image" (merge (dict "appVersion" .root.Chart.AppVersion) .root.Values.image)) -}}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy -}}
{{- with .root.Values.image.pullSecrets -}}
{{- $secrets := list -}}
{{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- $_ := set $.pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- end -}}
