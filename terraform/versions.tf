terraform {
  required_version = ">= 1.9" # a variable's validation may look at other variables

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.33, < 9" # 7.31 ended the diff that a Scheduler job's headers showed in every plan; 7.33 can leave a Spanner instance behind
    }
    archive = {
      source  = "hashicorp/archive"
      version = ">= 2.7, < 3"
    }
    random = {
      source  = "hashicorp/random"
      version = ">= 3.7, < 4"
    }
    time = {
      source  = "hashicorp/time"
      version = ">= 0.13, < 1"
    }
  }
}
