"""Who we are to the API server and how to reach it: kubeconfig, tokens, certificates, proxies."""
